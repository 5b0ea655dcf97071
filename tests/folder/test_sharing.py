"""Files on shared systems: stale handles, files that are open elsewhere, clocks that differ."""

import errno
import json
import socket
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ptrun.folder import lease, result, sharing
from ptrun.folder.state import state_of


@pytest.fixture
def failing(monkeypatch):
    """Return a function that lets a method of `Path` fail some times; its calls are counted."""
    monkeypatch.setattr(sharing, "_PAUSE", 0.0)

    def fail(name, number, times):
        real, calls = getattr(Path, name), []

        def act(self, *given, **named):
            calls.append(self)
            if len(calls) <= times:
                raise OSError(number, "shared")
            return real(self, *given, **named)

        monkeypatch.setattr(Path, name, act)
        return calls

    return fail


def test_a_stale_handle_is_read_again(tmp_path, failing):
    file = tmp_path / "x"
    file.write_text("text")
    calls = failing("read_text", errno.ESTALE, 2)
    assert sharing.read_text(file) == "text" and len(calls) == 3


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EBUSY, errno.EACCES])
def test_a_file_that_is_open_elsewhere_is_replaced_when_it_is_closed(tmp_path, failing, number):
    result.write_json(tmp_path / "x.json", {"old": 1})
    calls = failing("replace", number, 3)
    result.write_json(tmp_path / "x.json", {"new": 2})
    assert json.loads((tmp_path / "x.json").read_text()) == {"new": 2} and len(calls) == 4


def test_what_does_not_pass_is_an_error(tmp_path, failing):
    calls = failing("replace", errno.ENOSPC, 9)
    with pytest.raises(OSError, match="shared"):
        result.write_json(tmp_path / "x.json", {})
    assert len(calls) == 1
    failing("read_text", errno.ESTALE, 9)
    with pytest.raises(OSError, match="shared"):
        sharing.read_text(tmp_path / "x.json")


def test_a_stale_owner_file_still_names_its_owner(tmp_path, failing):
    folder = tmp_path / "run-1"
    with lease.held(folder):
        failing("read_text", errno.ESTALE, 1)
        assert state_of(folder).kind == "running"


@pytest.mark.parametrize("skew", [-10, 10], ids=["behind", "ahead"])
def test_a_clock_that_differs_by_ten_seconds_changes_no_owner(tmp_path, monkeypatch, skew):
    """The owner is on a machine with another clock; it beats, and then it is silent."""
    monkeypatch.setattr(lease, "SILENCE", 0.4)
    monkeypatch.setattr(lease, "_POLL", 0.05)
    folder = tmp_path / "run-1"
    since = (datetime.now().astimezone() + timedelta(seconds=skew)).isoformat()
    other = lease.Owner(f"not-{socket.gethostname()}", 1, since)
    file = tmp_path / ".run-1.owner"
    beats = iter(range(1, 100))

    def sleep(_seconds):
        lease._write(file, lease.replace(other, beat=next(beats)))

    lease._write(file, other)
    with monkeypatch.context() as patched:
        patched.setattr(lease.time, "sleep", sleep)
        with pytest.raises(lease.Busy, match=f"process 1 on {other.host}"), lease.held(folder):
            pass
    with lease.held(folder):
        assert lease.owner(folder).here
