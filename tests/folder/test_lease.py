"""Leases: one owner a run folder, also when owners die or are on another machine."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from ptrun.errors import UserError
from ptrun.folder import lease
from ptrun.folder.lease import Busy, Owner, held, owner

HOLD = """
import sys, time
from pathlib import Path
from ptrun.folder.lease import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "outputs" / "runs" / "run-1"


@pytest.fixture
def holder(folder):
    line = [sys.executable, "-c", HOLD, str(folder)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_lease_is_held_by_one_process_which_is_named(folder, holder):
    with pytest.raises(Busy, match=rf"run-1 is being run by process {holder.pid} on ") as caught:
        held(folder).__enter__()
    assert socket.gethostname() in str(caught.value) and "sweep.wait=true" in str(caught.value)
    assert owner(folder).pid == holder.pid


def test_the_lease_of_a_killed_process_is_taken_over(folder, holder):
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    assert owner(folder) is None, "a process that nobody has waited for is dead too"
    holder.wait()
    assert owner(folder) is None
    with held(folder):
        assert owner(folder).pid == os.getpid()


def test_a_released_lease_leaves_nothing(folder, tmp_path):
    with held(folder):
        assert not folder.exists()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="x"), held(folder):
        raise ValueError("x")
    assert list(tmp_path.iterdir()) == []


def test_a_waiting_process_gets_the_lease_when_it_is_free(folder, monkeypatch, caplog):
    monkeypatch.setattr(lease, "_POLL", 0.05)
    order = []

    def second():
        with held(folder, wait=True):
            order.append("second")

    with caplog.at_level("INFO"), held(folder):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.3)
        order.append("first")
    thread.join()
    assert order == ["first", "second"] and "waiting for run-1" in caplog.text


def elsewhere(folder, beat):
    folder.parent.mkdir(parents=True, exist_ok=True)
    content = {"host": "other", "pid": 1, "since": "2026-01-01", "beat": beat}
    folder.with_name(f".{folder.name}.owner").write_text(json.dumps(content))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(lease, "_POLL", 0.05)
    monkeypatch.setattr(lease, "SILENCE", 0.5)


def test_an_owner_on_another_machine_keeps_its_lease_while_it_beats(folder, quick):
    elsewhere(folder, 1)
    threading.Timer(0.2, elsewhere, [folder, 2]).start()
    with pytest.raises(Busy, match="process 1 on other since 2026-01-01"):
        held(folder).__enter__()
    with held(folder):  # it is silent
        assert owner(folder).host == socket.gethostname()


def test_the_owner_beats(folder, monkeypatch):
    monkeypatch.setattr(lease, "BEAT", 0.05)
    with held(folder):
        first = owner(folder)
        time.sleep(0.3)
        assert owner(folder).beat > first.beat


def test_a_damaged_owner_file_names_nobody(folder):
    elsewhere(folder, 1)
    folder.with_name(f".{folder.name}.owner").write_text("{")
    assert owner(folder) is None


def test_a_process_is_known_by_its_id_its_machine_and_its_birth(folder):
    with held(folder):
        assert not owner(folder).gone and replace(owner(folder), born="1").gone
    assert not Owner("other", 2**22 + 1, "").gone
    assert Owner(socket.gethostname(), 2**22 + 1, "").gone


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        held(tmp_path / "file" / "runs" / "run-1").__enter__()


def test_a_read_only_folder_is_told_as_one(folder, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(lease.FileLock, "acquire", refuse)
    said = r"runs: the folder of runs cannot be written \(Read-only"
    with pytest.raises(UserError, match=said), held(folder):
        pass
