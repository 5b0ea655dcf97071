"""Runs as jobs of a real Slurm, where one is at hand (`SLURM_CONF`)."""

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.run_folders import assert_same, rows
from tests.tiers import package

pytestmark = [pytest.mark.slow, pytest.mark.slurm]
SMALL = ["task=pocket_sentiment", "setting=few_shot_32", "train.batch_size=8"]
LONG = [*SMALL, "train.max_steps=200", "train.eval_every=200", "cluster.cpus=1"]
TWELVE = ["-m", "method=ptuning_v2,prompt_tuning", "seed=range(1,7)", *LONG]


@pytest.fixture(autouse=True)
def cluster():
    if shutil.which("sinfo") is None:
        pytest.skip("Slurm: not installed")
    if subprocess.run(["sinfo"], capture_output=True).returncode:
        pytest.skip("Slurm: none answers; SLURM_CONF names its configuration")


def queue():
    line = ["squeue", "--noheader", "--array", "--format=%i %T"]
    told = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    return dict(row.split() for row in told.splitlines())


def until(condition, seconds=240):
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, queue()
        time.sleep(0.2)


def states(ptrun, folder="out"):
    return {
        Path(own["folder"]).name: own
        for own in json.loads(ptrun("status", folder, "--json").stdout)
    }


def steps_of(folder):
    return [row["step"] for row in rows(folder)]


def started(ptrun, least=20):
    files = (ptrun.folder / "out").glob("runs/*/metrics.jsonl")
    groups = {
        file.parent.name.split("-")[0] for file in files if len(steps_of(file.parent)) > least
    }
    return len(groups) == 2


def wake():
    """Let jobs that were queued again start at once; Slurm would wait two minutes."""
    for task, state in queue().items():
        if state == "PENDING":
            subprocess.run(["scontrol", "update", f"JobId={task}", "StartTime=now"], check=False)


def done(ptrun, count):
    wake()
    return sum(own["state"] == "finished" for own in states(ptrun).values()) == count


def compare(ptrun, *overrides):
    """Compare the tensors with those of the same sweep on this machine."""
    local = ptrun(*overrides, "outputs=local")
    assert local.returncode == 0, local.stderr
    files = sorted((ptrun.folder / "local").rglob("prompt.safetensors"))
    assert files
    for file in files:
        other = ptrun.folder / "out" / file.relative_to(ptrun.folder / "local")
        assert_same(file.parent, other.parent)


def test_twelve_runs_survive_preemption_and_requeueing(ptrun):
    told = ptrun(*TWELVE, "sweep.on=slurm", "outputs=out")
    assert told.returncode == 0 and "submitted 12 runs in 2 groups as Slurm job" in told.stderr
    first, second = sorted(queue())
    until(lambda: "RUNNING" in queue().values())
    until(lambda: started(ptrun))
    again = ptrun(*TWELVE, "sweep.on=slurm", "outputs=out")
    assert "submitted" not in again.stderr  # they run
    subprocess.run(["scancel", "--signal=USR1", first], check=True)
    subprocess.run(["scontrol", "requeue", second], check=True)
    until(lambda: "RUNNING" not in queue().values())
    kinds = {own["state"] for own in states(ptrun).values()}
    assert kinds == {"queued"}, states(ptrun)
    assert "submitted" not in ptrun(*TWELVE, "sweep.on=slurm", "outputs=out").stderr
    until(lambda: done(ptrun, 12))
    for file in (ptrun.folder / "out").glob("runs/*/metrics.jsonl"):
        assert steps_of(file.parent) == list(range(1, 201))
    compare(ptrun, *TWELVE)


def test_the_same_command_takes_up_a_job_that_was_killed(ptrun):
    line = ["-m", "seed=1,2", *LONG]
    assert ptrun(*line, "sweep.on=slurm", "outputs=out").returncode == 0
    (job,) = queue()
    until(lambda: any((ptrun.folder / "out").glob("runs/*/metrics.jsonl")))
    killed = []
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURM_JOB_ID={job}".encode() in process.read_bytes():
                killed.append(int(process.parent.name))
        except OSError:
            continue
    for process in sorted(killed, reverse=True):
        os.kill(process, signal.SIGKILL)
    until(lambda: not queue())
    assert {own["state"] for own in states(ptrun).values()} == {"interrupted"}
    waited = ptrun(*line, "sweep.on=slurm", "sweep.wait=true", "outputs=out")
    assert waited.returncode == 0 and "2 runs: 2 finished" in waited.stderr
    compare(ptrun, *line)


def test_a_run_of_two_tasks_survives_preemption(ptrun):
    package("deepspeed")
    line = ["-m", "seed=1", *LONG, "hardware=zero1", "hardware.ranks=2"]
    line += ["hardware.device=cpu"]
    told = ptrun(*line, "sweep.on=slurm", "outputs=out")
    assert told.returncode == 0, told.stderr
    (job,) = queue()
    until(lambda: "RUNNING" in queue().values())
    journals = (ptrun.folder / "out").glob
    until(lambda: any(len(steps_of(f.parent)) > 20 for f in journals("runs/*/metrics.jsonl")))
    subprocess.run(["scancel", "--signal=USR1", job], check=True)
    until(lambda: "RUNNING" not in queue().values())
    (stopped,) = states(ptrun).values()
    assert stopped["state"] == "queued"
    until(lambda: done(ptrun, 1))
    (file,) = (ptrun.folder / "out").rglob("result.json")
    manifest = json.loads(file.read_text())["manifest"]
    assert manifest["ranks"] == 2 and manifest["nodes"] == [os.uname().nodename]
    assert steps_of(file.parent) == list(range(1, 201))
    compare(ptrun, *line)
