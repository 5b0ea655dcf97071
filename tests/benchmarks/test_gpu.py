"""`make gpu`: a part that fails or hangs stops no other, and all pass in miniature on a CPU."""

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.append(str(FOLDER))

import gpu  # noqa: E402
import gpu_page  # noqa: E402
import speed  # noqa: E402

ONE = gpu.PARTS[0]
GIVEN = argparse.Namespace(how=gpu.SMALL, session=None, only=None, commit="1a2b3c4d")
RECORDED = json.loads((FOLDER / "results" / "gpu.json").read_text())


@pytest.fixture
def done(tmp_path, monkeypatch):
    """Do a part of a script."""
    part = replace(ONE, small=str(tmp_path / "part.py"))

    def done(code, limit=60, left=60.0):
        (tmp_path / "part.py").write_text(code)
        return gpu.done(replace(part, limit=limit), GIVEN, left)

    return done


def test_a_part_prints_its_figures_last(done):
    row = done("print('first')\nprint('{\\n \"a\": 1\\n}')")
    assert row["outcome"] == "passed" and row["figures"] == {"a": 1}


def test_a_part_that_fails_or_hangs_is_told_and_ends(done):
    failed = done("raise SystemExit('no device')")
    assert failed["outcome"] == "FAILED" and failed["said"] == ["no device"]
    hanging = done("import time\nprint('{\"a\": 1}', flush=True)\ntime.sleep(60)", limit=1)
    assert hanging["outcome"] == "STOPPED after 3 s" and hanging["figures"] == {"a": 1}
    assert done("import time\ntime.sleep(60)", left=1.0)["outcome"] == "STOPPED after 1 s"
    page = gpu.page([failed, hanging], gpu.SMALL)
    assert "0 of 2 parts passed" in page and "1a2b3c4d |" in page


def test_a_gpu_has_20_minutes_and_every_part_a_command():
    parts = gpu.chosen(argparse.Namespace(how=gpu.FULL, session=None, only=None))
    assert sum(part.limit for part in parts) <= 20 * 60
    for part in gpu.PARTS:
        assert (FOLDER / part.command.split()[0]).is_file()


def test_the_pages_are_those_of_the_stored_results():
    assert (FOLDER / "results" / "gpu.md").read_text() == gpu.page(RECORDED, gpu.FULL)
    for name in gpu_page.TABLES:
        assert (gpu_page.ROOT / name).read_text() == gpu_page.filled(name, RECORDED)


def test_operations_are_counted_as_published():
    bert = speed.Cell("bert_base_uncased", 32, 128, "prompt")
    config = speed.sizes(bert, small=False)
    assert speed.flops(config, [[1] * 100], 0) == 4 * 84934656 + 12 * 12 * 768 * 100
    llama = speed.sizes(speed.MORE[0], small=False)
    head = 4 * 128256 * 2048 * 200 / 400
    maps = 4 * 973078528  # 1,235,814,400 less embedding and norms
    assert speed.flops(llama, [[1] * 400], 200) == maps + 6 * 16 * 2048 * 400 + head


@pytest.mark.slow
@pytest.mark.parametrize("part", [part.name for part in gpu.PARTS if not part.extra])
def test_a_part_passes_in_miniature(tmp_path, part):
    line = [sys.executable, str(FOLDER / "gpu.py"), "--small", "--only", part]
    done = subprocess.run([*line, "--out", str(tmp_path)], capture_output=True, text=True)
    (row,) = json.loads((tmp_path / "gpu_small.json").read_text())
    assert (row["part"], row["outcome"]) == (part, "passed"), done.stdout
    assert "1 of 1 parts passed" in (tmp_path / "gpu_small.md").read_text()
