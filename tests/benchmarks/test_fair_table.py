"""`fair_table.py`: its cells are commands that compose, and its page has what is finished."""

import sys
from pathlib import Path

import pytest

from ptrun.config.compose import compose_run
from ptrun.config.paths import options

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def fair_table(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import fair_table

    yield fair_table
    for name in ("fair_table", "running"):
        sys.modules.pop(name, None)


def test_each_cell_has_eight_methods_with_a_space_and_at_most_200_steps(fair_table):
    places = dict.fromkeys(("weights", "data", "outputs", "texts"), Path("x"))
    for name in fair_table.CELLS:
        typed = fair_table.overrides(name, places)
        methods = typed[0].partition("=")[2].split(",")
        assert len(methods) >= 8 and {*methods} <= options("search").keys()
        config = compose_run([f"method={methods[-1]}", *typed[1:]]).config
        assert config["train"]["max_steps"] <= 200
    assert (fair_table.TRIALS, fair_table.SEEDS) == (6, 5)


def test_a_command_ends_or_is_stopped_in_time(fair_table):
    late = fair_table.time.monotonic() - 1
    assert fair_table.done([sys.executable, "-c", "pass"], late + 100)
    assert not fair_table.done([sys.executable, "-c", "raise SystemExit(1)"], late + 100)
    assert not fair_table.done([sys.executable, "-c", "import time; time.sleep(60)"], late)


def test_the_page_has_the_finished_cells(fair_table):
    figures = {"TREC": {"command": "ptrun compare method=lora", "table": "| a |\n| --- |"}}
    page = "\n".join(fair_table.page(figures))
    assert "## TREC" in page and "`ptrun compare method=lora`" in page and "| a |" in page
