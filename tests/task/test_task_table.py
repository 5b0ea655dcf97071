"""The published table of the data sets is what `benchmarks/task_table.py` reads from the files."""

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TABLE = runpy.run_path(str(FOLDER / "task_table.py"))


@pytest.mark.slow
@pytest.mark.shared
def test_the_published_table_is_that_of_the_real_data(shared):
    published = FOLDER / "results" / "tasks.md"
    found = TABLE["found_in"](shared / "data")
    rows = [row for name, content in found for row in TABLE["rows"](name, content)]
    assert TABLE["markdown"](rows) == published.read_text(encoding="utf-8")
