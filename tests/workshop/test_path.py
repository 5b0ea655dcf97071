"""The path of a run: what it enters and imports, printed in a process of its own."""

import re
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_a_run_imports_what_it_uses_and_the_path_ends_at_its_result(tmp_path):
    line = ["method=ptuning_v2", "task=pocket_ner", "train.max_steps=1", f"outputs={tmp_path}"]
    printed = subprocess.run(
        [sys.executable, "-m", "workshop.path", *line], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"^ +\d+  runs/recipe\.py$", printed, re.MULTILINE)
    assert "    1  ptrun.types.RunResult\n" in printed
    files, lines = re.search(r"imported: (\d+) files .*, ([\d,]+) lines", printed).groups()
    assert int(files) <= 90 and int(lines.replace(",", "")) <= 20_000
