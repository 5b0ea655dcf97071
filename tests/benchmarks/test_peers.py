"""Trainer + PEFT beside ptrun in miniature: both train the same rows, and a page is written."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / "benchmarks" / "peers.py"


@pytest.mark.slow
def test_both_products_are_measured(tmp_path):
    line = ["--shapes", "tiny", "--repeats", "1", "--methods", "prefix", "--jobs", "few_shot"]
    done = subprocess.run(
        [sys.executable, str(PEERS), *line, "--out", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (pair,) = json.loads((tmp_path / "peers_fp32.json").read_text())["pairs"]
    assert all(own["tokens_per_second"] > 0 for own in (*pair["ours"], *pair["theirs"]))
    assert "tiny" in (tmp_path / "peers_fp32.md").read_text()
