"""README is short; every number and id on it is of docs/generate/readme.py or checked here."""

import re
import sys
import tomllib

import pytest

from ptrun.config.compose import compose_run
from tests.docs.pages import DOCS, ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = 120
PART = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
SUMMARY = re.compile(r"```\n(ptuning_v2 · .*?)\n```", re.DOTALL)
# versions of Python (test_the_versions_of_python), n of (DPT ... v2), and years
SAID = {"3.11", "3.13", "2026"}


@pytest.fixture
def readme(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS / "generate"))
    import readme

    yield readme
    sys.modules.pop("readme")


def test_readme_is_a_page_of_at_most_120_lines():
    assert len(TEXT.splitlines()) <= LINES
    assert max(len(line) for line in PART.sub("", TEXT).splitlines()) <= 120


def test_its_tables_are_those_of_the_results(readme):
    assert readme.filled(TEXT) == TEXT
    assert {part for part in PART.findall(TEXT)} == {*readme.PARTS}


def test_no_other_number_is_on_it():
    prose = SUMMARY.sub("", PART.sub("", TEXT))
    prose = re.sub(r"```.*?```|\]\([^)]*\)|`[^`]*`", "", prose, flags=re.DOTALL)
    numbers = set(re.findall(r"(?<![\w-])\d[\d.,]*\d|(?<![\w.-])\d(?![\w-])", prose))
    assert numbers <= SAID


def test_the_versions_of_python_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    low, high = re.fullmatch(r">=(3\.\d+),<3\.(\d+)", project["requires-python"]).groups()
    assert f"Python {low} to 3.{int(high) - 1}" in TEXT


def test_the_summary_is_that_of_the_bare_command(tmp_path):
    from ptrun.runs.plan import plan

    planned = plan(compose_run([f"outputs={tmp_path}"]))
    summary = SUMMARY.search(TEXT)[1]
    assert summary.endswith(f"outputs/runs/{planned.run_id}")
    learned = planned.build_method().learned_parameters()
    counts = ", ".join(f"{part} {learned[part]:,}" for part in ("prompt", "head", "backbone"))
    assert f"trained {learned['total']:,} parameters ({counts})" in summary


@pytest.mark.slow
def test_the_scores_of_the_summary_come_again(tmp_path, warm):
    done = warm.run([], tmp_path)
    assert done.returncode == 0, done.stderr
    said, now = SUMMARY.search(TEXT)[1], done.stdout.strip()
    assert re.sub(r"\d[\d,.]*", "#", now) == re.sub(r"\d[\d,.]*", "#", said)
    assert _scores(now) == pytest.approx(_scores(said), abs=1.0)  # points: processors round


def _scores(summary):
    return [float(n) for n in re.findall(r"(?:f1|precision|recall) (\d+\.\d+)", summary)]
