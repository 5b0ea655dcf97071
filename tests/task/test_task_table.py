"""The published table of the data sets is what `benchmarks/task_table.py` reads from the files."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
TABLE = runpy.run_path(str(FOLDER / "task_table.py"))


def records(data):
    return [
        row for name, content in TABLE["found_in"](data) for row in TABLE["rows"](name, content)
    ]


@pytest.mark.slow
def test_each_file_of_a_task_and_of_a_setting_is_a_row_of_its_own(tmp_path):
    for file, texts in {
        "superglue/cb/train": "abcd",
        "fewglue/cb/train": "ab",
        "fewglue/cb/validation": "c",
        "fewglue/cb/test": "xyz",
    }.items():
        path = tmp_path / f"{file}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [{"premise": text, "hypothesis": "so", "label": 0} for text in texts]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    line = [sys.executable, str(FOLDER / "task_table.py"), "--data", str(tmp_path)]
    subprocess.run([*line, "--out", str(tmp_path)], check=True, capture_output=True)
    rows = json.loads((tmp_path / "tasks.json").read_text())
    found = {row["file"]: (row["rows"], set(row["shared"])) for row in rows}
    assert found == {
        "superglue/cb/train": (4, set()),
        "fewglue/cb/train": (2, {"full train"}),
        "fewglue/cb/validation": (1, {"full train"}),
        "fewglue/cb/test": (3, set()),
    }


@pytest.mark.slow
@pytest.mark.shared
def test_the_published_table_is_that_of_the_real_data(shared):
    published = FOLDER / "results" / "tasks.md"
    assert TABLE["markdown"](records(shared / "data")) == published.read_text(encoding="utf-8")
