"""Which settings a table names for a cell, and what finding them costs."""

from dataclasses import replace

import pytest

from ptrun.config.identity import flat
from ptrun.reporting import cells as module
from ptrun.reporting.cells import NAMES, cells
from ptrun.reporting.table import of_runs
from ptrun.types import SIGNS
from tests.runs.test_store import outcome

CONFIGS = [
    {"method": {"length": 1}, "train": {"lr": 0.1}},
    {"method": {"length": 2}, "train": {"lr": 0.1}},
    {"method": {"length": 1, "pattern": None}, "train": {"lr": 0.1}},  # null is as a missing key
    {"method": {"length": 1}, "train": {}},  # a missing key
    {"method": {}, "train": {"lr": "0.1"}},  # another type of the same text
    {"method": {"a.b": 1}, "other": {"deep": {"er": [1, 2]}}},
    {"method": {"a": {"b": 1}}},  # the same dotted key
    {},
]


def run(index, seed, config, task="t", status="finished"):
    names = {name: task if name == "task" else "same" for name in (*NAMES, "hardware")}
    metrics = {"dev": {"f1": float(index)}, "test": {"f1": 1.0 + seed}}
    group, own = f"{task}{index}", {**config, "seed": seed}
    return outcome(
        run_id=f"{group}-{seed}-{status}",
        **{"group": group, "seed": seed, "config": own, "names": names},
        **{"metrics": metrics, "status": status},
    )


def made():
    """Return runs of two tasks that differ in all ways, with seeds that some cells lack."""
    seeds = [(1, 2), (1,), (3,), (2, 1), (1, 2, 3), (5,), (1,), (2,)]
    found = [
        run(index, seed, config, task)
        for task in ("b task", "a=task")
        for index, config in enumerate(CONFIGS)
        for seed in seeds[index][: 3 if task == "b task" else 1]
    ]
    return [*found, run(1, 4, CONFIGS[1], "b task", "failed"), run(0, 1, CONFIGS[0], "alone")]


def named(own, runs):
    """Return the settings of a run in which those of its names differ, by the definition."""
    rivals = [flat(run.config) for run in runs if run.names == own.names]
    varied = {k for a in rivals for k in a if any(str(a[k]) != str(b.get(k)) for b in rivals)}
    return " ".join(f"{k}={v}" for k, v in flat(own.config).items() if k in varied - {"seed"})


def test_a_cell_names_each_setting_in_which_its_rivals_differ():
    runs = made()
    found = cells(runs)
    assert len(found) == 2 * len(CONFIGS) + 1
    assert [cell.differs for cell in found] == [named(cell.runs[0], runs) for cell in found]
    assert [cell.differs for cell in found if cell.names[0] == "b task"] == [
        *["", "method.a.b=1", "method.a.b=1 other.deep.er=[1, 2]", "method.length=1"],
        *["method.length=1 train.lr=0.1", "method.length=1 train.lr=0.1"],
        *["method.length=2 train.lr=0.1", "train.lr=0.1"],
    ]


def test_missing_seeds_are_those_of_the_same_task_setting_and_protocol():
    shown = of_runs({run.run_id: run for run in made()}, "made")
    lacking = [note for note in shown.printed.notes if note.startswith("missing seeds")]
    told = [
        (note.split(" of ")[0], name)
        for note in lacking
        for name in note.split(" of ")[1].split("; ")
    ]
    assert len(told) == 2 * len(CONFIGS)
    name = "b task same same same same method.length=2 train.lr=0.1"
    assert ("missing seeds: 2, 3, 4, 5", name) in told, "seed 4 failed"
    assert not any("alone" in note for note in lacking)


def test_many_cells_without_a_seed_are_one_line():
    runs = [run(length, 1, {"method": {"length": length}}, "task") for length in range(6)]
    runs.append(run(0, 2, {"method": {"length": 0}}, "task"))
    (note,) = (
        n for n in of_runs({r.run_id: r for r in runs}, "made").printed.notes if "missing" in n
    )
    assert note.startswith("missing seeds: 2 of task") and note.endswith("; and 2 more")


def test_cells_that_hardly_learned_are_marked_with_their_rate():
    config = {"method": {"length": 1}, "train": {"lr": 1e-4}}
    still = {"warnings": [f"{SIGNS[0]}, from 0.7 in the first tenth", "another warning"]}
    runs = [run(1, seed, config, "task") for seed in (1, 2, 3)]
    runs.append(run(2, 1, {"method": {"length": 2}, "train": {"lr": 0.1}}, "task"))
    plain = of_runs({r.run_id: r for r in runs}, "made")
    marked = of_runs({r.run_id: replace(r, manifest=still) if r.seed > 1 else r for r in runs}, "")
    told = "2 of 3 runs hardly learned (the loss hardly moved) at train.lr=0.0001"
    assert any(note.startswith(f"* {told}: task same") for note in marked.printed.notes)
    assert [row["test"].endswith(" *") for row in marked.printed.rows] == [True, False]
    assert [row["hardly_learned"] for row in marked] == [told, ""] and told in marked.csv()
    assert "hardly" not in f"{plain}{plain.csv()}" and "*" not in str(plain)


@pytest.mark.parametrize("group", [cells, lambda runs: cells(runs, "train.lr")])
def test_each_configuration_is_flattened_a_fixed_number_of_times(monkeypatch, group):
    """More runs of all different cells take as many calls more, not their square."""
    calls = []
    monkeypatch.setattr(module, "flat", lambda config: calls.append(config) or flat(config))

    def count(size):
        calls.clear()
        group([run(i, 1, {"method": {"n": i}, "train": {"lr": i}}) for i in range(size)])
        return len(calls)

    assert count(40) == 4 * count(10)
