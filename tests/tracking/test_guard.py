"""A tracker that raises, hangs or leaves neither fails nor delays a run, and is told once."""

import sys
import threading
import time

import pytest

from ptrun.tracking import trackers as guarding
from ptrun.tracking.trackers import TrackerGuard


class Recorder:
    def __init__(self, before=lambda: None, opening=lambda: None):
        self.rows, self.ended, self.before, self.open = [], [], before, opening

    def log(self, numbers, step):
        self.before()
        self.rows.append((step, numbers))

    def finish(self, result):
        self.ended.append(result)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(guarding, "PATIENCE", 0.3)
    monkeypatch.setattr(guarding, "_hanging", [])


def rows(guard, count=5):
    for step in range(count):
        guard.log({"event": "step", "step": step, "loss": 1.0, "note": "text", "part": ""})


def test_rows_arrive_in_order_and_the_end_is_waited_for(caplog):
    tracker = Recorder(lambda: time.sleep(0.02))
    guard = TrackerGuard("wandb", "json", tracker)
    rows(guard)
    guard.finish(None)
    assert tracker.rows == [(step, {"step/loss": 1.0}) for step in range(5)]
    assert tracker.ended == [None] and not caplog.records


def fail():
    raise ConnectionError("no route\nto the host")


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (fail, "ConnectionError: no route;"),
        (lambda: sys.exit(3), "SystemExit: 3;"),
        (lambda: time.sleep(20), "no answer for 0 seconds;"),
    ],
    ids=["raises", "leaves", "hangs"],
)
@pytest.mark.parametrize("opening", [True, False])
def test_a_tracker_that_fails_is_turned_off_with_one_warning(caplog, before, told, opening):
    tracker = Recorder(opening=before) if opening else Recorder(before)
    began = time.monotonic()
    guard = TrackerGuard("wandb", "json", tracker)
    rows(guard)
    time.sleep(0.5)
    rows(guard)
    guard.finish(None)
    assert time.monotonic() - began < 5
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning.startswith(f"tracking=wandb is off from here on: {told}")
    assert warning.endswith("the run goes on")


def test_a_process_with_a_hanging_tracker_ends_at_once(monkeypatch):
    ended = []
    monkeypatch.setattr(guarding.os, "_exit", ended.append)
    guarding.leave(1)
    assert ended == []
    guard = TrackerGuard("wandb", "json", Recorder(lambda: time.sleep(5)))
    rows(guard, 1)
    guard.finish(None)
    guarding.leave(3)
    assert ended == [3]


def test_slow_rows_are_not_a_hang(caplog):
    tracker = Recorder(lambda: time.sleep(0.1))
    guard = TrackerGuard("wandb", "json", tracker)
    rows(guard, 8)  # 0.8 seconds, but each call is short
    guard.finish(None)
    assert len(tracker.rows) == 8 and not caplog.records


def test_a_second_end_is_nothing():
    tracker = Recorder()
    guard = TrackerGuard("wandb", "json", tracker)
    guard.finish(None)
    guard.finish(None)
    assert tracker.ended == [None]
    assert guard.thread not in threading.enumerate()
