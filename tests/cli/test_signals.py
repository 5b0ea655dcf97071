"""Signals save at the next step, and the same command goes on; a second one ends at once."""

import json
import signal
import subprocess
import time

import pytest
from safetensors.torch import load_file


def heeded():
    """Heed SIGINT, which a job in a shell's background ignores."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def started(ptrun, *overrides, lines):
    """Start a run, and return it with its folder once its journal has so many lines."""
    line = ptrun.line(*ptrun.small("train.max_steps=300", "train.eval_every=300"), *overrides)
    running = subprocess.Popen(
        line, cwd=ptrun.folder, stderr=subprocess.PIPE, text=True, preexec_fn=heeded
    )
    journal = []
    while running.poll() is None and not (journal and journal[0].read_text().count("\n") >= lines):
        time.sleep(0.01)
        journal = list((ptrun.folder / "cut").rglob("metrics.jsonl"))
    return running, journal[0].parent


def steps(folder):
    rows = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if row["event"] == "step"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_saves_at_the_next_step_and_the_run_goes_on_bit_for_bit(ptrun, name):
    running, folder = started(ptrun, "outputs=cut", lines=20)
    running.send_signal(getattr(signal, name))
    _, told = running.communicate(timeout=60)
    assert running.returncode == 128 + getattr(signal, name)
    reached = len(steps(folder))
    assert f"stopped by {name}, saved at step {reached}" in told
    assert ptrun("status", "cut").stdout.count(f"interrupted at step {reached}") == 1
    again = ptrun(*ptrun.small("train.max_steps=300", "train.eval_every=300"), "outputs=cut")
    assert again.returncode == 0 and f"resuming from step {reached} of 300" in again.stderr
    whole = ptrun(*ptrun.small("train.max_steps=300", "train.eval_every=300"), "outputs=whole")
    assert whole.returncode == 0, whole.stderr
    same = ptrun.folder / "whole" / folder.relative_to(ptrun.folder / "cut")
    assert steps(folder) == steps(same) and len(steps(folder)) == 300
    ours, theirs = (load_file(one / "prompt.safetensors") for one in (folder, same))
    assert all(bool((ours[key] == theirs[key]).all()) for key in ours)


@pytest.mark.slow
def test_a_sweep_saves_all_its_runs_and_goes_on(ptrun):
    line = ["-m", "seed=1,2", "outputs=cut"]
    running, folder = started(ptrun, *line, lines=20)
    running.send_signal(signal.SIGTERM)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM and "stopped by SIGTERM" in told
    states = json.loads(ptrun("status", "cut", "--json").stdout)
    reached = len(steps(folder))
    assert [one["state"] for one in states] == ["interrupted"] * 2
    assert {one["step"] for one in states} == {reached}
    again = ptrun(*ptrun.small("train.max_steps=300", "train.eval_every=300"), *line)
    assert again.returncode == 0 and "2 runs: 2 finished" in again.stderr
    assert len(steps(folder)) == 300


@pytest.mark.slow
def test_nohup_stays_in_force(ptrun):
    line = ptrun.line(*ptrun.small("train.max_steps=30", "train.eval_every=30"), "outputs=cut")
    ignored = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731 as nohup does
    running = subprocess.Popen(line, cwd=ptrun.folder, preexec_fn=ignored)
    time.sleep(4)
    running.send_signal(signal.SIGHUP)
    assert running.wait(timeout=60) == 0
