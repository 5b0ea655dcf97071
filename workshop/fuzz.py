"""Fuzz every target of tests/fuzz with random examples, and write how many were tried.

    python -m workshop.fuzz [--only KEYWORD] [--examples N]

Hypothesis draws the examples (profile `nightly` of tests/fuzz/conftest.py) and keeps those that
fail in .hypothesis, to be tried first the next time. A test fails on any exception that is not a
message in words, and on a wrong answer. A failing example becomes an @example of its test.

Writes benchmarks/results/fuzz.md.
"""

import argparse
import base64
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks/results/fuzz.md"
_TRIED = re.compile(r"(\d+) passing, (\d+) failing, and (\d+) invalid")
_STATISTICS = "hypothesis-statistics-"


@dataclass
class Target:
    """What was tried on a file of tests: properties, examples, failures, seconds."""

    says: str
    properties: int = 0
    examples: int = 0
    failures: int = 0
    seconds: float = 0.0


def targets(report: Path) -> dict[str, Target]:
    """Return the figures of each file of tests from pytest's JUnit report."""
    suite = ElementTree.parse(report).getroot()
    found: dict[str, Target] = {}
    for case in suite.iter("testcase"):
        name = case.get("classname", "").rpartition(".")[2].removeprefix("test_")
        own = found.setdefault(name, Target(_summary(name)))
        own.properties += 1
        own.failures += case.find("failure") is not None or case.find("error") is not None
        own.seconds += float(case.get("time", 0))
    for one in suite.iter("property"):
        if str(one.get("name")).startswith(_STATISTICS):
            name = str(one.get("name")).rpartition("/test_")[2].partition(".py::")[0]
            found[name].examples += examples(base64.b64decode(str(one.get("value"))).decode())
    return found


def examples(statistics: str) -> int:
    """Return how many valid examples were tried, from Hypothesis's text about a test."""
    return sum(int(right) + int(wrong) for right, wrong, _ in _TRIED.findall(statistics))


def _summary(name: str) -> str:
    text = (ROOT / "tests" / "fuzz" / f"test_{name}.py").read_text(encoding="utf-8")
    return text.split('"""')[1].strip().rstrip(".")


def page(found: dict[str, Target]) -> str:
    """Return the page of results."""
    lines = [
        "# Random examples",
        "",
        "`make fuzz` tries them; an `@example` keeps each that failed.",
    ]
    lines += ["A failure is an exception that is no message in words, or a wrong answer.", ""]
    lines += ["| target | properties | examples | failures | seconds |", "|---|---|---|---|---|"]
    whole = Target("all")
    for name, own in sorted(found.items()):
        lines.append(_line(f"`{name}`: {own.says}", own))
        for field in ("properties", "examples", "failures", "seconds"):
            setattr(whole, field, getattr(whole, field) + getattr(own, field))
    return "\n".join([*lines, _line("all", whole)]) + "\n"


def _line(name: str, own: Target) -> str:
    numbers = f"{own.properties} | {own.examples:,} | {own.failures} | {own.seconds:.0f}"
    return f"| {name} | {numbers} |"


def main() -> None:
    """Run pytest and write the page; the exit code is that of pytest."""
    parser = argparse.ArgumentParser("python -m workshop.fuzz", description=__doc__)
    parser.add_argument("--only", metavar="KEYWORD", help="as pytest's -k; writes no page")
    parser.add_argument("--examples", default="1000", metavar="N", help="of each property")
    args = parser.parse_args()
    only, environ = args.only, {**os.environ, "PTRUN_FUZZ_EXAMPLES": args.examples}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        line = [sys.executable, "-m", "pytest", "tests/fuzz", "-q", "-p", "no:xdist"]
        line += ["--hypothesis-profile=nightly", "--hypothesis-show-statistics"]
        line += [f"--junitxml={report}", *(["-k", only] if only else [])]
        code = subprocess.run(line, cwd=ROOT, env=environ, check=False).returncode
        text = page(targets(report))
    print(text)
    if not only:
        PAGE.write_text(text, encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
