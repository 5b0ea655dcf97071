"""`make gpu`: a part that fails or hangs stops no other, and all pass in miniature on a CPU."""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ptrun.backbone.dropout import RULE
from tests.cuda import device
from tests.cuda.session import environment

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


def test_a_lent_gpu_measures_an_older_tree_first(tmp_path):
    parts = gpu.chosen(argparse.Namespace(how=gpu.FULL, session=tmp_path, only=None))
    names = [part.name for part in parts]
    assert names[1:3] == ["speed_before", "speed"] and names[-1] == "speed_more"
    assert gpu.commit(tmp_path) == tmp_path.name
    file = tmp_path / "ptrun" / "backbone" / "dropout.py"
    file.parent.mkdir(parents=True)
    file.write_text("SITE = 3\n")
    assert [gpu.rule(tree) for tree in (tmp_path, FOLDER.parent)] == [1, RULE]


def test_the_pages_are_those_of_the_stored_results():
    assert (FOLDER / "results" / "gpu.md").read_text() == gpu.page(RECORDED, gpu.FULL)
    for name in gpu_page.TABLES:
        assert (gpu_page.ROOT / name).read_text() == gpu_page.filled(name, RECORDED)


CELL = "bert_base_uncased 32 x 128 prompt"
FIGURES = {"tokens_per_second": 90000.0, "share_of_peak": 0.3, "ms": 4.0, "host_ms": 1.0}
FIGURES |= {"launches": 9.0, "graphs": 1.0, "reserved_mib": 2048.0}


def test_the_tables_show_what_was_measured_and_why_not():
    peer = {**FIGURES, "tokens_per_second": 30000.0}
    cells = [
        {"cell": CELL, "ptrun": FIGURES, "peer": peer},
        {"cell": speed.CELLS[0].name, "ptrun": {"failed": "too late"}, "peer": peer},
        {"cell": CELL, "compiled": peer},
    ]
    figures = {"device": "Card", "memory_gib": 79.2, "cells": cells}
    row = {"part": "speed", "outcome": "passed", "figures": figures}
    short = gpu_page.short([row]).splitlines()
    assert "| 80 GiB (Card) |" in short[-1] and "| 90,000 (3.0x) |" in short[-1]
    assert "90,000" not in short[-2] and gpu_page.MISSING in short[-2]
    lines = gpu_page.speeds([row]).splitlines()
    assert f"| {CELL} | ptrun | 90,000 | 30% | 4.0 | 1.0 | 9 + 1 | 2.0 |" in lines
    assert any("| ptrun | not measured: too late |" in line for line in lines)
    assert any("compiled | 30,000" in line for line in lines)


def test_operations_are_counted_as_published():
    bert = speed.Cell("bert_base_uncased", 32, 128, "prompt")
    config = speed.sizes(bert, small=False)
    assert speed.flops(config, [[1] * 100], 0) == 4 * 84934656 + 12 * 12 * 768 * 100
    llama = speed.sizes(speed.MORE[0], small=False)
    head = 4 * 128256 * 2048 * 200 / 400
    maps = 4 * 973078528  # 1,235,814,400 less embedding and norms
    assert speed.flops(llama, [[1] * 400], 200) == maps + 6 * 16 * 2048 * 400 + head


COUNTS = {0: 200, 5: 410}
"""By cell, the most operations of a step of two layers on a GPU, own kernels left out."""


@pytest.mark.slow
@pytest.mark.parametrize("cell", COUNTS)
def test_a_step_on_a_gpu_sends_no_more_operations(cell):
    if reason := device.missing():
        pytest.skip(f"disguised CUDA device: {reason}")
    line = [sys.executable, str(FOLDER / "speed.py"), "--small", "--device", "cuda"]
    line += ["--only", str(cell), "--seconds", "300"]
    ran = subprocess.run(
        line, capture_output=True, text=True, timeout=400, check=False, env=environment(os.environ)
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = json.loads(ran.stdout.splitlines()[-1])["cells"]
    assert 0 < row["ptrun"]["operations"] <= COUNTS[cell]


@pytest.mark.slow
def test_all_parts_pass_in_miniature(tmp_path):
    line = [sys.executable, str(FOLDER / "gpu.py"), "--small", "--out", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=900, check=False)
    rows = json.loads((tmp_path / "gpu_small.json").read_text())
    assert not [row for row in rows if row["outcome"] != "passed"], done.stdout
    assert "parts passed" in (tmp_path / "gpu_small.md").read_text()
