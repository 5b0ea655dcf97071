"""Signals save at the next step, and the same command goes on; a second one ends at once."""

import json
import signal
import time

import pytest

from tests.run_folders import assert_same, rows

pytestmark = pytest.mark.slow
LONG = ("train.max_steps=300", "train.eval_every=300")


def until(ptrun, running, lines):
    """Wait until the journal of a run has so many steps; return its folder."""
    journals = []
    while running.poll() is None and not (journals and len(rows(journals[0].parent)) >= lines):
        time.sleep(0.01)
        journals = list((ptrun.folder / "cut").rglob("metrics.jsonl"))
    return journals[0].parent


def test_signals_save_at_the_next_step_and_the_run_goes_on_bit_for_bit(ptrun):
    line = [*ptrun.small(*LONG), "outputs=cut"]
    for name, lines in (("SIGINT", 20), ("SIGTERM", 120)):
        with ptrun.start(*line) as running:
            folder = until(ptrun, running, lines)
            running.send_signal(getattr(signal, name))
            assert running.wait(60) == 128 + getattr(signal, name)
        reached = len(rows(folder))
        assert f"stopped by {name}, saved at step {reached}" in running.err
        assert ptrun("status", "cut").stdout.count(f"interrupted at step {reached}") == 1
    again = ptrun(*line)
    assert again.returncode == 0 and f"resuming from step {reached} of 300" in again.stderr
    whole = ptrun(*ptrun.small(*LONG), "outputs=whole")
    assert whole.returncode == 0, whole.stderr
    same = ptrun.folder / "whole" / folder.relative_to(ptrun.folder / "cut")
    assert_same(folder, same)
    assert len(rows(folder)) == 300


def test_a_sweep_saves_all_its_runs_and_goes_on(ptrun):
    line = [*ptrun.small(*LONG), "-m", "seed=1,2", "outputs=cut"]
    with ptrun.start(*line) as running:
        folder = until(ptrun, running, 20)
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 128 + signal.SIGTERM and "stopped by SIGTERM" in running.err
    states = json.loads(ptrun("status", "cut", "--json").stdout)
    assert [one["state"] for one in states] == ["interrupted"] * 2
    assert {one["step"] for one in states} == {len(rows(folder))}
    again = ptrun(*line)
    assert again.returncode == 0 and "2 runs: 2 finished" in again.stderr
    assert len(rows(folder)) == 300


def test_nohup_stays_in_force(ptrun):
    code = "import runpy, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    code += "runpy.run_module('ptrun', run_name='__main__', alter_sys=True)"
    line = [*ptrun.small("train.max_steps=60", "train.eval_every=60"), "outputs=cut"]
    with ptrun.warm.start(["-c", code, *line], ptrun.folder) as running:
        until(ptrun, running, 5)
        running.send_signal(signal.SIGHUP)
        assert running.wait(60) == 0, running.err
