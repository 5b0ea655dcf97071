"""The plan of a table: runs, states, groups, disk and hours by cell."""

import json

import pytest
from rich.console import Console

from ptrun.planning.overview import PlanOptions, table_overview

POCKET = ["task=pocket_sentiment", "setting=few_shot_32", "train.max_steps=4"]


@pytest.fixture
def told(tmp_path):
    """Return a function that plans cells and returns the lines."""

    def made(asked=None, **methods):
        jobs = {
            key: [
                [f"method={method}", f"seed={seed}", f"name={key}", *POCKET, f"outputs={tmp_path}"]
                for seed in range(1, 41)
            ]
            for key, method in methods.items()
        }
        console = Console(width=120)
        with console.capture() as captured:
            console.print(table_overview("a table", jobs, asked or PlanOptions()))
        return captured.get().splitlines()

    return made


def row(lines, key):
    (line,) = [line for line in lines if line.strip("│ ").startswith(key)]
    return line.strip("│ ").split()[::2]


def test_runs_that_share_are_few_groups_and_others_are_one_each(told):
    lines = told(frozen="ptuning_v2", tuned="fine_tuning")
    assert row(lines, "frozen")[:5] == ["frozen", "40", "0", "40", "2"]
    assert row(lines, "tuned")[:5] == ["tuned", "40", "0", "40", "40"]
    assert "80 runs, 80 left, in 42 groups" in lines[-1]


def test_finished_runs_are_not_left(told, tmp_path):
    result = {"run_id": "r", "group": "g", "names": {}, "seed": 1, "metric": "accuracy"}
    result |= {"learned_parameters": {"total": 1}, "config": {}, "status": "finished"}
    result["metrics"] = {"test": {"accuracy": 50.0}}
    for number in range(10):
        folder = tmp_path / "frozen" / f"run-{number}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps({**result, "run_id": folder.name}))
    assert row(told(frozen="ptuning_v2"), "frozen")[:5] == ["frozen", "40", "10", "30", "1"]


def test_a_cell_that_cannot_be_planned_says_why(told):
    lines = told(frozen="ptuning_v2", wrong="ptuning_v3")
    assert any(line.startswith("wrong: not planned: ") and "ptuning_v3" in line for line in lines)


@pytest.mark.slow
def test_a_probe_gives_the_time(told):
    assert any(
        "of 1 of 1 cells takes" in line and "on this device" in line
        for line in told(PlanOptions(probe=2), frozen="ptuning_v2")
    )


def test_the_speed_of_a_device_gives_the_time(told):
    lines = told(PlanOptions(tflops=0.1), frozen="ptuning_v2", wrong="ptuning_v3")
    assert any("of 1 of 2 cells takes" in line and "at 0.1 TFLOP/s" in line for line in lines)
