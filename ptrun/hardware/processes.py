"""Ranks as processes: started together, watched, and ended together."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

_SETTLE = 1.0  # seconds in which others that end for the same reason are heard too
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL

Process = subprocess.Popen[bytes]


@dataclass(frozen=True)
class End:
    """How a rank ended by itself: exit code, negative for a signal, and when (wall clock)."""

    rank: int
    code: int
    at: float


def work(
    command: Sequence[str], environments: Sequence[Mapping[str, str]], folder: Path
) -> list[End]:
    """Run a process for each environment; return how they ended, in that order of time.

    As soon as one fails the others are ended too, and are not in the list. Whatever ends this
    call, none is left. Rank 0 speaks here; what the others say is in `folder/rank<N>.err`.
    """
    processes: list[Process] = []
    ends: SimpleQueue[End] = SimpleQueue()
    try:
        for rank, env in enumerate(environments):
            processes.append(_start(command, env, folder / f"rank{rank}.err" if rank else None))
            _report(rank, processes[-1], ends)
        return _wait(ends, len(processes))
    finally:
        if any(process.poll() != 0 for process in processes):
            _end(processes)


def _start(command: Sequence[str], env: Mapping[str, str], said: Path | None) -> Process:
    """Start a process in a group of its own: a Ctrl-C reaches the launcher alone, which tells."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
    if said is None:
        return subprocess.Popen(command, env=dict(env), **given)
    with said.open("wb") as file:
        return subprocess.Popen(command, env=dict(env), stdout=file, stderr=file, **given)


def _report(rank: int, process: Process, ends: "SimpleQueue[End]") -> None:
    """Let a thread wait for a process, so that the order of ends is the order in the queue."""

    def wait() -> None:
        code = process.wait()
        ends.put(End(rank, code, time.time()))

    threading.Thread(target=wait, daemon=True).start()


def _wait(ends: "SimpleQueue[End]", count: int) -> list[End]:
    """Return all ends, or those until the first failure and shortly after it."""
    found: list[End] = []
    while len(found) < count and not (found and found[-1].code):
        found.append(ends.get())
    until = time.monotonic() + _SETTLE
    while len(found) < count:
        try:
            found.append(ends.get(timeout=max(0.0, until - time.monotonic())))
        except Empty:
            break
    return found


def _end(processes: Sequence[Process]) -> None:
    """End what still runs, and what it started: asked first, then killed."""
    running = [process for process in processes if process.poll() is None]
    _signal(running, signal.SIGTERM)
    until = time.monotonic() + _GRACE
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
