"""Progress: a line a minute where no terminal shows the bar, and none for work that is short."""

import logging

import pytest

from ptrun.training import progress
from tests.clock import own_clock


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    own_clock(monkeypatch, progress, monotonic=lambda: now[0])
    logging.getLogger("ptrun").propagate = True
    return now


def steps(clock, seconds, **keys):
    """Train ten steps of a run that was resumed at step 10 of 40."""
    with progress.meter(40, 10, **keys) as show:
        for step in range(11, 21):
            clock[0] += seconds
            show(step, 0.5, "accuracy", None if step < 15 else 81.25, 600)


def test_a_line_a_minute_says_how_far_it_is(clock, caplog):
    with caplog.at_level(logging.INFO, "ptrun"):
        steps(clock, 25)
    assert caplog.messages == [
        "step 13 of 40 · loss 0.500 · 24 tokens/s · 11 min left",
        "step 16 of 40 · loss 0.500 · best dev accuracy 81.2 · 24 tokens/s · 10 min left",
        "step 19 of 40 · loss 0.500 · best dev accuracy 81.2 · 24 tokens/s · 9 min left",
    ]


@pytest.mark.parametrize(("seconds", "quiet"), [(1, False), (25, True)])
def test_short_runs_and_other_ranks_are_silent(clock, caplog, seconds, quiet):
    with caplog.at_level(logging.INFO, "ptrun"):
        steps(clock, seconds, quiet=quiet)
    assert caplog.messages == []


def test_a_bar_on_a_terminal_needs_no_lines(clock, caplog, monkeypatch):
    monkeypatch.setattr(progress, "_is_drawn", lambda: True)
    with caplog.at_level(logging.INFO, "ptrun"):
        steps(clock, 25)
    assert caplog.messages == []
