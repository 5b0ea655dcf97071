"""Ranks as processes that start, are watched and end together."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from ptrun.training.stopping import Stopped

_SETTLE = 1.0  # seconds to wait for other ranks that fail for the same reason
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_STEP = 3600.0  # the same for ranks that finish a step and save

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class End:
    """The end of a rank: its exit code, negative for a signal, and its time (wall clock)."""

    rank: int
    code: int
    at: float


def work(
    command: Sequence[str], environments: Sequence[Mapping[str, str]], folder: Path
) -> list[End]:
    """Run a process for each environment; return how they ended, in order of time.

    After a failure the other processes are ended, and are not in the list. No process outlives
    this call. Rank 0 prints here; the others print to `folder/rank<N>.err`.
    """
    processes: list[Process] = []
    ends: SimpleQueue[End] = SimpleQueue()
    try:
        for rank, env in enumerate(environments):
            processes.append(_start(command, env, folder / f"rank{rank}.err" if rank else None))
            threading.Thread(target=_report, args=[rank, processes[-1], ends], daemon=True).start()
        return _wait(ends, len(processes))
    except Stopped:
        _end(processes, _STEP)
        raise
    finally:
        if any(process.poll() != 0 for process in processes):
            _end(processes, _GRACE)


def _start(command: Sequence[str], env: Mapping[str, str], output: Path | None) -> Process:
    """Start a process in its own group, so that a Ctrl-C reaches only the launcher."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    with output.open("wb") if output else nullcontext() as file:
        return subprocess.Popen(command, env=dict(env), stdout=file, stderr=file, **options)


def _report(rank: int, process: Process, ends: "SimpleQueue[End]") -> None:
    """Wait for a process, each in a thread, so that the queue has the order of the ends."""
    code = process.wait()
    ends.put(End(rank, code, time.time()))


def _wait(ends: "SimpleQueue[End]", count: int) -> list[End]:
    """Return all ends, or those up to shortly after the first failure."""
    ended: list[End] = []
    while len(ended) < count and not (ended and ended[-1].code):
        ended.append(ends.get())
    until = time.monotonic() + _SETTLE
    with suppress(Empty):
        while len(ended) < count:
            ended.append(ends.get(timeout=max(0.0, until - time.monotonic())))
    return ended


def _end(processes: Sequence[Process], grace: float) -> None:
    """End running processes and their children, by SIGTERM and after `grace` s by SIGKILL."""
    running = [process for process in processes if process.poll() is None]
    _signal(running, signal.SIGTERM)
    until = time.monotonic() + grace
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=max(0.0, until - time.monotonic()))
    _signal(processes, signal.SIGKILL)
    for process in processes:
        process.wait()


def _signal(processes: Sequence[Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(process.pid, number)
