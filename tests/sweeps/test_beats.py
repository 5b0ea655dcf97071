"""Owners on other machines: taken over when silent, left alone while they beat."""

import threading

import pytest

from ptrun.config.schema import SweepConfig
from ptrun.folder import lease
from ptrun.folder.lease import Beats
from ptrun.sweeps import scheduler as scheduling
from ptrun.sweeps.scheduler import Scheduler
from ptrun.sweeps.sweep import of_line
from ptrun.sweeps.view import View
from tests.clock import own_clock
from tests.sweeps.test_scheduler import WORKER

OTHER = lease.Owner("another-machine", 7, "2026-01-01T00:00:00+00:00")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(lease, "SILENCE", 0.5)


def test_an_owner_is_silent_only_after_a_while(tmp_path, monkeypatch):
    now, file, folder = [0.0], tmp_path / ".run.owner", tmp_path / "run"
    own_clock(monkeypatch, lease, monotonic=lambda: now[0])
    beats = Beats()
    assert beats.silent(folder) is True and not beats.unsure(folder)  # nobody
    lease._write(file, OTHER)
    assert beats.silent(folder) is None and beats.unsure(folder)
    now[0] = 0.4
    lease._write(file, lease.replace(OTHER, beat=1))
    assert beats.silent(folder) is False
    now[0] = 0.8
    assert beats.silent(folder) is False and not beats.unsure(folder)
    now[0] = 1.0
    assert beats.silent(folder) is True and beats.unsure(folder)


@pytest.mark.slow
@pytest.mark.parametrize("beating", [True, False])
def test_a_sweep_takes_over_runs_of_a_machine_that_died(tmp_path, monkeypatch, beating):
    monkeypatch.setattr(scheduling, "_LOOK", 0.1)
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal"))
    folder = tmp_path / "outputs" / "runs" / "run-2"
    folder.mkdir(parents=True)
    file, done = folder.with_name(".run-2.owner"), threading.Event()
    lease._write(file, OTHER)

    def beat():
        count = 0
        while not done.wait(0.1):
            count += 1
            lease._write(file, lease.replace(OTHER, beat=count))

    thread = threading.Thread(target=beat, daemon=True)
    if beating:
        thread.start()
    jobs = of_line([f"outputs={tmp_path / 'outputs'}", "seed=1,2"])
    Scheduler(jobs, SweepConfig(), View(2), WORKER).run()
    done.set()
    assert [job.stage for job in jobs] == ["finished", "elsewhere" if beating else "finished"]
