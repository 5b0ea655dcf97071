"""A small table with every kind of row, and results for it as runs write them."""

import tempfile
from functools import cache
from pathlib import Path

from ptrun.folder.result import write
from ptrun.papers.experiment import read
from ptrun.papers.rows import compose, rows
from ptrun.papers.shown import Shown
from ptrun.types import RunResult

TABLE = """
paper: made
table: table1
title: Two methods | <b>side</b> & side </script><script>alert(1)</script><!--
source: nowhere
protocol: as it comes
seeds: [1, 2, 3, 4, 5]
statistic: mean
precision: fp32
backbone: {small: backbone=bert_base_cased}
method: {FT: method=fine_tuning, PT_1: method=prompt_tuning, quoted: ""}
setting: {full: setting=full}
task: {RTE: task=rte, CB: task=cb, AVG: ""}
metrics: {acc: accuracy}
not_run: [{when: {method: quoted}, why: "another paper's number, 100 % <i>quoted</i>"}]
derived: [{when: {task: AVG}, mean_over: task}]
notes: [{when: {method: FT, task: CB}, says: "an F1 in the accuracy's column, 100 % <i>sure</i>"}]
cells:
  - [small, FT, full, RTE, acc, 70.1, 1.0]
  - [small, PT_1, full, RTE, acc, 71.0, null, 70.2]
  - [small, FT, full, CB, acc, 80.0]
  - [small, PT_1, full, CB, acc, null]
  - [small, PT_1, full, AVG, acc, 75.5]
  - [small, quoted, full, RTE, acc, 60.0]
"""
SCORES = {
    ("small.FT.full.RTE", "paper"): {1: 70.0, 2: 71.0, 3: 69.0, 4: 70.5, 5: 69.5},
    ("small.FT.full.RTE", "honest"): {1: 69.0, 2: 70.0},
    ("small.PT_1.full.RTE", "paper"): {1: 74.0, 2: 75.0, 3: 73.0, 4: 74.5, 5: 73.5},
    ("small.PT_1.full.CB", "paper"): {1: 81.0, 3: 83.0},
}


def filled(folder, more=""):
    """Return the table with its results, below a folder; `more` lines of its file."""
    (folder / "table.yaml").write_text(TABLE + more)
    results(folder / "outputs")
    experiment = read(folder / "table.yaml")
    return Shown(experiment, rows(experiment, folder / "outputs"))


def results(outputs):
    """Write the runs of some cells; seed 2 of the last cell failed."""
    folder = outputs / "made" / "table1"
    for (key, protocol), own in SCORES.items():
        for seed, score in own.items():
            put(folder / key, TABLE, seed, score, protocol=protocol, seconds=360)
    last = folder / "small.PT_1.full.CB"
    put(last, TABLE, 2, 0.0, status="failed", seconds=360)


def put(
    folder, table, seed, test, dev=50.0, *, group="", status="finished", protocol="paper",
    seconds=3600, typed=(),
):  # fmt: skip
    """Write the run of a cell of a table, which is named as its folder."""
    place = folder / f"{group}-{protocol}-s{seed}"
    place.mkdir(parents=True, exist_ok=True)
    own = recorded(table, folder.name, *typed)
    run = RunResult(
        run_id=place.name,
        group=group + protocol,
        status=status,
        names=own["names"] | {"protocol": protocol},
        config=own["config"] | {"seed": seed},
        seed=seed,
        metric="accuracy",
        metrics={"dev": {"accuracy": dev}, "test": {"accuracy": test, "macro_f1": test - 20}},
        learned_parameters={"total": 20_480},
        manifest={"seconds": seconds},
    )
    write(place, run)


@cache
def recorded(table, key, *typed):
    """Return names and configuration of a run of a cell; `typed` are further overrides."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.yaml"
        file.write_text(table)
        experiment = read(file)
    cell = next(cell for cell in experiment.cells if cell.key == key)
    made = compose([*experiment.overrides(cell), *typed])
    return {"names": dict(made.names), "config": dict(made.settings)}
