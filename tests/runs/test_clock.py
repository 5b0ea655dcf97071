"""The clock of the machine jumps while a run trains."""

import itertools
import json
import time
from datetime import datetime, timedelta

import pytest

from ptrun.folder import lease
from ptrun.runs.launch import launch

DAY = 86_400.0


class Jumping(datetime):
    """A clock that is a day early, then a day late, and so on."""

    days = itertools.cycle((-1, 1, 0))

    @classmethod
    def now(cls, tz=None):
        return datetime.now(tz) + timedelta(days=next(cls.days))


@pytest.mark.slow
def test_a_clock_that_jumps_while_a_run_trains_changes_nothing(small, tmp_path, monkeypatch):
    def run(name):
        line = ["method.length=3", "train.max_steps=4", "train.eval_every=2", f"name={name}"]
        done = launch(small(*line))
        rows = (tmp_path / name / done.run_id / "metrics.jsonl").read_text().splitlines()
        return done.run_id, done.metrics, [json.loads(row) for row in rows]

    calm, real = run("calm"), time.time
    monkeypatch.setattr(lease, "BEAT", 0.01)
    monkeypatch.setattr(lease, "datetime", Jumping)
    monkeypatch.setattr(time, "time", lambda: real() + next(Jumping.days) * DAY)
    assert run("jumping") == calm
