"""A small table with every kind of row, and results for it as runs write them."""

import json

from ptrun.ledger.experiment import read
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import Shown
from tests.ledger.recorded import recorded

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


def results(outputs, *, table="made/table1", scores=SCORES):
    """Write the runs of some cells; seed 2 of the last cell failed."""
    for (key, protocol), own in scores.items():
        for seed, score in own.items():
            write(outputs / table / key, protocol, seed, score)
    write(outputs / table / "small.PT_1.full.CB", "paper", 2, None)


def write(folder, protocol, seed, score):
    """Write one run's result, or its failure without a score."""
    own = recorded(TABLE, folder.name)
    place = folder / f"{protocol}-s{seed}"
    place.mkdir(parents=True, exist_ok=True)
    status = "failed" if score is None else "finished"
    history = [{"step": 10 * n, "accuracy": 50.0 + n} for n in range(1, 4)]
    content = {
        "run_id": place.name,
        "group": protocol,
        "status": status,
        "names": own["names"] | {"protocol": protocol},
        "config": own["config"] | {"seed": seed},
        "seed": seed,
        "metric": "accuracy",
        "metrics": {"dev": {"accuracy": score}, "test": {"accuracy": score}} if score else {},
        "learned_parameters": {"total": 20_480},
        "manifest": {"seconds": 360.0, "history": history},
    }
    name = "result.json" if score else "failure.json"
    (place / name).write_text(json.dumps(content))
