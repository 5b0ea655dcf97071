"""Files of somebody else and on shared systems: links, pipes, stale handles, other clocks."""

import errno
import json
import os
import socket
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from ptrun import files
from ptrun.folder import lease, result
from ptrun.folder.scan import state_of
from tests.clock import own_clock


@pytest.fixture
def failing(monkeypatch):
    """Return a function that lets a call fail some times; its calls are counted."""
    monkeypatch.setattr(files, "_PAUSE", 0.0)

    def fail(name, number, times):
        owner = files if name == "read_bytes" else Path
        real, calls = getattr(owner, name), []

        def act(self, *given, **named):
            calls.append(self)
            if len(calls) <= times:
                raise OSError(number, "shared")
            return real(self, *given, **named)

        monkeypatch.setattr(owner, name, act)
        return calls

    return fail


def test_a_stale_handle_is_read_again(tmp_path, failing):
    file = tmp_path / "x"
    file.write_text("text")
    calls = failing("read_bytes", errno.ESTALE, 2)
    assert files.read_text(file) == "text" and len(calls) == 3


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
    failing("read_bytes", errno.ESTALE, 9)
    with pytest.raises(OSError, match="shared"):
        files.read_text(tmp_path / "x.json")


def test_a_stale_owner_file_still_names_its_owner(tmp_path, failing):
    folder = tmp_path / "run-1"
    with lease.held(folder):
        failing("read_bytes", errno.ESTALE, 1)
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
        own_clock(patched, lease, sleep=sleep)
        with pytest.raises(lease.Busy, match=f"process 1 on {other.host}"), lease.held(folder):
            pass
    with lease.held(folder):
        assert lease.owner(folder).here


@pytest.fixture
def outside(tmp_path):
    file = tmp_path / "outside"
    file.write_text("kept")
    return file


def odd(folder, kind, outside):
    file = folder / "odd"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to({"link": outside, "device": Path("/dev/zero"), "nowhere": "gone"}[kind])
    return file


KINDS = ("pipe", "folder", "device", "link", "nowhere")


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read(tmp_path, outside, kind):
    file = odd(tmp_path, kind, outside)
    with pytest.raises(OSError, match=r"regular|link|directory") as raised:
        files.read_text(file)
    assert raised.value.filename == str(file)


@pytest.mark.parametrize("kind", ["pipe", "device", "nowhere"])
def test_a_link_that_may_be_followed_leads_to_a_regular_file(tmp_path, outside, kind):
    assert files.read_text(odd(tmp_path, "link", outside), links=True) == "kept"
    (tmp_path / "odd").unlink()
    with pytest.raises(OSError):
        files.read_text(odd(tmp_path, kind, outside), links=True)


@pytest.mark.parametrize("kind", KINDS)
def test_appending_follows_nothing(tmp_path, outside, kind):
    with pytest.raises(OSError):
        files.append(odd(tmp_path, kind, outside), "more")
    assert outside.read_text() == "kept" and not (tmp_path / "gone").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "link", "nowhere"])
def test_a_planted_draft_is_replaced(tmp_path, outside, kind):
    """The name of a draft is known: folder, file and process."""
    odd(tmp_path, kind, outside).rename(tmp_path / f".new.{os.getpid()}")
    files.write_text(tmp_path / "new", "text")
    assert (tmp_path / "new").read_text() == "text" and not (tmp_path / "new").is_symlink()
    assert outside.read_text() == "kept" and not (tmp_path / "gone").exists()


def test_more_than_the_limit_is_not_read(tmp_path):
    file = tmp_path / "sparse.json"
    with file.open("wb") as opened:
        opened.truncate(10**12)
    with pytest.raises(OSError, match="larger than 100 MB"):
        files.read_json(file)


def test_deep_json_is_a_value_error(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        files.read_json(tmp_path / "deep.json")


def test_a_path_below_the_folder_of_runs_leads_nowhere_else(tmp_path):
    (tmp_path / "disk" / "outputs").mkdir(parents=True)
    outputs = tmp_path / "outputs"
    outputs.symlink_to(tmp_path / "disk" / "outputs")  # the user's own
    assert files.below(outputs, "runs", "a") == outputs / "runs" / "a"
    (outputs / "runs").symlink_to(tmp_path / "disk")
    with pytest.raises(OSError, match=r"leads out of .* by a link"):
        files.below(outputs, "runs", "a")
