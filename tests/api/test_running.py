"""The functions of `import ptrun` do what the commands do, and leave their process as it was."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading

import pytest
import torch

import ptrun
from ptrun.runs import recipe
from ptrun.training.stopping import SIGNALS
from tests.api.conftest import PRECISE

COMMON = {"method": "ptuning_v2", "task": "pocket_sentiment"}


def state():
    """Return what a call must not change in its process."""
    loggers = [logging.getLogger("ptrun"), logging.getLogger()]
    handlers = [(logger.handlers[:], logger.level) for logger in loggers]
    return dict(os.environ), [signal.getsignal(n) for n in SIGNALS], handlers


def test_a_new_run_prints_nothing_and_changes_nothing(place, capfd):
    before, random = state(), torch.get_rng_state()
    run = ptrun.run(PRECISE, **COMMON, seed=7, **place)
    run.predict([{"sentence": "a bright film"}])
    assert capfd.readouterr() == ("", "")
    assert state() == before and torch.equal(torch.get_rng_state(), random)


def test_a_finished_run_is_found_by_its_values_its_id_and_its_digits(own, place, monkeypatch):
    def train(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(recipe, "_train", train)
    overrides = ["task=pocket_sentiment", "train.max_steps=2", "train.batch_size=4"]
    kept = {key: place[key] for key in ("hardware", "data_dir", "outputs")}
    again = ptrun.run(*overrides, PRECISE, method="ptuning_v2", seed=1, **kept)
    assert again.folder == own.folder and again.result == own.result
    for name in (own.folder, own.id, own.id[-8:]):
        assert ptrun.load(name, outputs=place["outputs"]).id == own.id


def test_it_works_in_another_thread_and_inside_an_event_loop(own, place):
    """So does a notebook: its kernel has a running loop."""

    async def cell():
        return ptrun.run(PRECISE, **COMMON, seed=1, **place)

    assert asyncio.run(cell()).id == own.id
    found = []
    thread = threading.Thread(
        target=lambda: found.append(ptrun.run(PRECISE, **COMMON, seed=8, **place))
    )
    thread.start()
    thread.join()
    assert found[0].status == "finished"


@pytest.mark.slow
def test_a_sweep_returns_its_runs_in_order_and_silently(own, place, capfd):
    before = state()
    runs = ptrun.sweep([{"seed": 9}, "seed=1"], PRECISE, **COMMON, **place)
    assert capfd.readouterr() == ("", "") and state() == before
    assert [run.seed for run in runs] == [9, 1] and runs[1].folder == own.folder
    (row,) = ptrun.report(runs)
    scores = [run.metrics["test"]["accuracy"] for run in runs]
    assert row["n"] == 2 and row["test"] == pytest.approx(sum(scores) / 2)


@pytest.mark.slow
def test_a_refused_run_of_a_sweep_is_named_after_the_others_ended(own, place):
    with pytest.raises(
        ptrun.UserError, match=r"1 of 2 runs are not done:\n  method=ptuning_v3: .*"
    ):
        ptrun.sweep(
            [{"method": "ptuning_v3"}, {"method": "ptuning_v2"}],
            PRECISE, task="pocket_sentiment", seed=1, **place,
        )  # fmt: skip
    with pytest.raises(ptrun.UserError, match=r"sweep.dry_run=true: type it on the command line"):
        ptrun.sweep([{"seed": 1}], sweep={"dry_run": True}, **place)


@pytest.mark.slow
def test_a_failed_run_raises_and_keeps_its_reason(place):
    values = {**place, "train": {**place["train"], "lr": 1e30}}
    with pytest.raises(ptrun.RunFailed, match="failed: "):
        ptrun.run(PRECISE, **COMMON, **values)
    (run,) = ptrun.sweep([{}], PRECISE, **COMMON, **values)
    assert run.status == "failed" and run.result.reason in str(run) and run.metrics == {}


def test_the_report_of_a_folder_is_that_of_its_runs(own, place):
    shown = ptrun.report(place["outputs"])
    assert shown.columns[:2] == ["task", "method"] and len(shown) >= 1
    assert {row["method"] for row in shown} == {"ptuning_v2"}
    with pytest.raises(ptrun.UserError, match="no such folder"):
        ptrun.report("nowhere")


LIGHT = """
import sys, time
import ptrun
assert {"run", "load", "sweep", "report", "Run"} <= set(dir(ptrun))
ptrun.UserError, ptrun.run, ptrun.load, ptrun.sweep, ptrun.report
heavy = {"torch", "hydra", "transformers", "datasets", "numpy", "rich"} & set(sys.modules)
assert not heavy, heavy
import ptrun.runs.examples, ptrun.sweeps.job
from ptrun.runs import examples
assert callable(ptrun.run) and callable(ptrun.sweep)
"""


def test_the_import_is_light_and_folders_do_not_hide_functions():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        ptrun.runn  # noqa: B018
