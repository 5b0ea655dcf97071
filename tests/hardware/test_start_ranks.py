"""Ranks of small programs in place of a run: how they end, what is told, and that none is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptrun.config.compose import Composed
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.hardware import processes
from ptrun.hardware.start_ranks import start

COMPOSED = Composed(
    {"seed": 3, "lr": 1e-05, "task": {"labels": {0: "no", 1: "ja, ü"}, "none": None}}, {"a": "b"}
)
HEAD = """
import json, os, signal, sys, time
from pathlib import Path
file, rank = Path(sys.argv[1]), int(os.environ["RANK"])
def tell(kind, text):
    told = {"kind": kind, "text": text, "at": time.time()}
    (file.parent / f"rank{rank}.json").write_text(json.dumps(told))
    sys.exit(1)
def hang():
    Path("pids").mkdir(exist_ok=True)
    Path("pids", str(os.getpid())).touch()
    time.sleep(60)
def met(count):
    for _ in range(2000):
        if Path("pids").is_dir() and len(os.listdir("pids")) >= count:
            return
        time.sleep(0.01)
"""
SPEAKS = """
print("out of", rank)
print("err of", rank, file=sys.stderr)
names = ["WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "OMP_NUM_THREADS"]
Path(f"env{rank}").write_text(json.dumps([os.environ[n] for n in [*names, "MASTER_PORT"]]))
Path(f"run{rank}").write_text(file.read_text())
Path("where").write_text(str(file.parent))
"""


def program(text):
    return [sys.executable, "-c", HEAD + text]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "_SETTLE", 0.3)
    return tmp_path


def gone(pids):
    """Wait until these processes are no more; return whether that came true."""
    until = time.monotonic() + 5
    while any(map(alive, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(alive, pids))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def pids(folder):
    return [int(name) for name in os.listdir(folder / "pids")]


def test_ranks_get_one_configuration_and_know_each_other(here, capfd, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start(COMPOSED, 3, program(SPEAKS))
    told = [(here / f"env{rank}").read_text() for rank in range(3)]
    ports = {text.split()[-1] for text in told}
    assert len(ports) == 1
    cores = len(os.sched_getaffinity(0))
    assert told[2].startswith(f'["3", "2", "127.0.0.1", "{max(1, cores // 3)}"')
    texts = [(here / f"run{rank}").read_text() for rank in range(3)]
    assert all(processes.read_text(text) == COMPOSED for text in texts)
    assert capfd.readouterr() == ("out of 0\n", "err of 0\n")
    assert not Path((here / "where").read_text()).exists()


def test_a_thread_count_that_is_set_stays(here, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    start(COMPOSED, 2, program(SPEAKS))
    assert '"7"' in (here / "env1").read_text()


FAILS = 'print("Traceback: here", file=sys.stderr), tell("ValueError", "7 is odd")'


LOST = r"(?s)rank 1 of 2 .*1: ValueError: 7 is odd.*  Traceback"
TOLD = {
    "a mistake that all ranks find": (
        *(3, 'tell("UserError", "seed is 3; use 4.")', UserError, r"^seed is 3; use 4\.$"),
    ),
    "a failed training": (2, 'rank or tell("RunFailed", "is nan")', RunFailed, "^is nan$"),
    "an error with its traceback": (2, f"if rank == 1:\n    {FAILS}\nhang()", RankLost, LOST),
}


@pytest.mark.parametrize(("count", "text", "error", "told"), TOLD.values(), ids=TOLD)
def test_what_a_rank_tells_is_told_once(count, text, error, told):
    with pytest.raises(error, match=told):
        start(COMPOSED, count, program(text))


def test_a_mistake_of_one_rank_names_it_and_ends_the_others(here):
    text = 'hang() if rank == 0 else (met(1), tell("UserError", "no such file."))'
    with pytest.raises(UserError, match=r"rank 1 of 2: no such file\."):
        start(COMPOSED, 2, program(text))
    assert gone(pids(here))


def test_a_killed_rank_ends_the_job_and_is_named(here):
    """Also where one that hangs does not listen, and one fails because the other is gone."""
    text = """
print("last words of", rank, file=sys.stderr, flush=True)
if rank == 2:
    met(1)
    os.kill(os.getpid(), signal.SIGKILL)
if rank == 1:
    met(1)
    tell("RuntimeError", "Connection closed by peer")
hang()
"""
    began = time.monotonic()
    with pytest.raises(RankLost) as caught:
        start(COMPOSED, 4, program(text))
    assert time.monotonic() - began < 30
    told = str(caught.value)
    assert told.startswith("rank 2 of 4 was killed by signal 9 (SIGKILL")
    assert "  last words of 2\n" in told and "resumes from the last save" in told
    assert "Connection closed" not in told and gone(pids(here))


@pytest.mark.slow
def test_a_rank_that_will_not_end_is_killed_and_what_it_started_too(here, monkeypatch):
    monkeypatch.setattr(processes, "_GRACE", 0.5)
    text = """
if rank == 0:
    met(2)
    sys.exit(3)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
hang()
"""
    with pytest.raises(RankLost, match=r"rank 0 of 2 ended with exit code 3; the others were"):
        start(COMPOSED, 2, program(text))
    assert len(pids(here)) == 2 and gone(pids(here))


PARENT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it
from ptrun.training import stopping
stopping.install()
from ptrun.config.compose import Composed
from ptrun.hardware.start_ranks import start
watch = "from ptrun.hardware.processes import exit_with_parent\\nexit_with_parent(os.environ)\\n"
try:
    start(Composed({}, {}), 2, [sys.executable, "-c", sys.argv[1] + watch + "hang()"])
except stopping.Stopped as stopped:
    sys.exit(128 + stopped.number)
"""


@pytest.mark.parametrize(
    ("number", "code"), [("SIGKILL", -9), ("SIGTERM", 143), ("SIGINT", 130)], ids=str
)
def test_no_rank_outlives_its_launcher(here, number, code):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    line = [sys.executable, "-c", PARENT, HEAD]
    parent = subprocess.Popen(line, env=env, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while (not Path("pids").is_dir() or len(pids(here)) < 2) and time.monotonic() < until:
        time.sleep(0.01)
    parent.send_signal(getattr(signal, number))
    assert parent.wait(timeout=30) == code
    assert len(pids(here)) == 2 and gone(pids(here))
