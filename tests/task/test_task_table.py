"""The published table of the data sets is what `benchmarks/task_table.py` reads from the files."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TABLE = runpy.run_path(str(FOLDER / "task_table.py"))


def records(data):
    return [
        row for name, content in TABLE["found_in"](data) for row in TABLE["rows"](name, content)
    ]


@pytest.mark.slow
@pytest.mark.shared
def test_the_published_table_is_that_of_the_real_data(shared):
    published = FOLDER / "results" / "tasks.md"
    assert TABLE["markdown"](records(shared / "data")) == published.read_text(encoding="utf-8")
