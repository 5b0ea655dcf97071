"""Every method, family and read-out: runs, stops, resumes and predicts on the disguised device."""

import json

import pytest

from ptrun.planning.grid import BACKBONES, TASKS, methods
from ptrun.readout.choose import READINGS
from tests.cuda.cells import TINY, listed, share

_PARTS = 4
_ALLOWED = ("read padded rows", "more than a batch, or tunes")
"""Why passes may not be replayed; all others are captured, which refuses what CUDA refuses."""
_WAITS = 1  # of the host in a step: for the losses and norms of all members at once


@pytest.mark.slow
@pytest.mark.parametrize("part", range(1, _PARTS + 1))
def test_combinations_end_on_the_device(disguised, part, tmp_path):
    file = tmp_path / "rows.jsonl"
    line = ("-m", "tests.cuda.grid", "--part", f"{part}/{_PARTS}", "--json", file)
    ran = disguised(*line, PTRUN_TEST_CUDA="")  # it starts the device itself
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row for row in rows if row["outcome"] != "pass"] == [], ran.stderr
    assert {row["cell"] for row in rows} == set(map(str, share(part, _PARTS)))
    open_ = {row["cell"]: row["open"] for row in rows if "deberta" not in row["cell"]}
    assert {cell: found for cell, found in open_.items() if found} == {}  # docs/concepts/runs.md
    assert {row["cell"]: row["waits"] for row in rows if row["waits"] > _WAITS} == {}
    assert {row["cell"]: row["uploads"] for row in rows if row["uploads"]} == {}
    reasons = {row["cell"]: row["passes"].get("reason", "") for row in rows}
    assert {cell: why for cell, why in reasons.items() if why and not why.endswith(_ALLOWED)} == {}
    replays = {row["cell"] for row in rows if row["passes"]["replayed"]}
    assert {cell for cell, why in reasons.items() if not why} == replays


def test_the_parts_are_all_combinations():
    parts = [cell for part in range(1, _PARTS + 1) for cell in share(part, _PARTS)]
    assert sorted(parts) == listed()


def test_every_method_family_and_readout_has_a_combination():
    cells = listed()
    tried = {cell.method.partition(", ")[0] for cell in cells}
    assert tried >= {name for name, run in methods().items() if not run.readout[1].get("pattern")}
    assert {cell.backbone for cell in cells} == {*BACKBONES, *(f"tiny_{kind}" for kind in TINY)}
    assert {cell.kind for cell in cells} == set(TASKS)
    readouts = {cell.method.partition(", ")[2] for cell in cells} - {""}
    assert readouts == set(READINGS)
