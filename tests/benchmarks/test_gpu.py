"""`make gpu`: a part that fails or hangs stops no other, and all pass in miniature on a CPU."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))

import gpu  # noqa: E402

ONE = gpu.PARTS[0]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Make a part of a script."""
    monkeypatch.setattr(gpu, "HERE", tmp_path)

    def part(code, limit=60):
        (tmp_path / "part.py").write_text(code)
        return replace(ONE, small="part.py", limit=limit)

    return part


def test_a_part_prints_its_figures_last(own, tmp_path):
    row = gpu.done(own("print('first')\nprint('{\\n \"a\": 1\\n}')"), gpu.SMALL, str(tmp_path))
    assert row["outcome"] == "passed" and row["figures"] == {"a": 1}


def test_a_part_that_fails_or_hangs_is_told_and_ends(own, tmp_path):
    failed = gpu.done(own("raise SystemExit('no device')"), gpu.SMALL, str(tmp_path))
    assert failed["outcome"] == "FAILED" and failed["said"] == ["no device"]
    hanging = gpu.done(own("import time\ntime.sleep(60)", limit=1), gpu.SMALL, str(tmp_path))
    assert hanging["outcome"] == "STOPPED after 3 s"
    assert "0 of 2 parts passed" in gpu.page([failed, hanging], gpu.SMALL)


def test_a_gpu_has_ten_minutes_and_every_part_a_command():
    assert len({part.name for part in gpu.PARTS}) == len(gpu.PARTS)
    for part in gpu.PARTS:
        assert (FOLDER / part.command.split()[0]).is_file()


@pytest.mark.slow
def test_all_parts_pass_in_miniature(tmp_path):
    line = [sys.executable, str(FOLDER / "gpu.py"), "--small", "--out", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    rows = json.loads((tmp_path / "gpu_small.json").read_text())
    assert not [row for row in rows if row["outcome"] != "passed"], done.stdout
    assert "parts passed" in (tmp_path / "gpu_small.md").read_text()
