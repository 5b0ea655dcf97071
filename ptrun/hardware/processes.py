"""Ranks as processes that start, are watched and end together."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from ptrun.config import plain_yaml
from ptrun.config.compose import Composed
from ptrun.training.stopping import Stopped

_SETTLE = 1.0  # seconds to wait for other ranks that fail for the same reason
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL
_STEP = 3600.0  # the same for ranks that finish a step and save

Process: TypeAlias = "subprocess.Popen[bytes]"


@dataclass(frozen=True)
class RankEnd:
    """The end of a rank: its exit code, negative for a signal, and its time (wall clock)."""

    rank: int
    code: int
    at: float


def work(
    command: Sequence[str], environments: Sequence[Mapping[str, str]], folder: Path
) -> list[RankEnd]:
    """Run a command line for each environment; return how the processes ended, in order of time.

    After a failure the other processes are ended, and are not in the list. No process outlives
    this call. Rank 0 prints here; the others print to `folder/rank<N>.err`.
    """
    processes: list[Process] = []
    ends: SimpleQueue[RankEnd] = SimpleQueue()
    try:
        for rank, env in enumerate(environments):
            output = (folder / f"rank{rank}.err").open("wb") if rank else nullcontext()
            with output as file:  # its own group, so that a Ctrl-C reaches only the launcher
                options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "start_new_session": True}
                processes.append(
                    subprocess.Popen(command, env=dict(env), stdout=file, stderr=file, **options)
                )

        def report(rank: int) -> None:  # each in a thread, so that the queue has their order
            code = processes[rank].wait()
            ends.put(RankEnd(rank, code, time.time()))

        for rank in range(len(processes)):
            threading.Thread(target=report, args=[rank], daemon=True).start()
        ended: list[RankEnd] = []
        while len(ended) < len(processes) and not (ended and ended[-1].code):
            ended.append(ends.get())
        until = time.monotonic() + _SETTLE  # for others that fail for the same reason
        with suppress(Empty):
            while len(ended) < len(processes):
                ended.append(ends.get(timeout=max(0.0, until - time.monotonic())))
        return ended
    except Stopped:
        _end(processes, _STEP)
        raise
    finally:
        if any(process.poll() != 0 for process in processes):
            _end(processes, _GRACE)


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


# Ends a rank when the process that started it is gone.

PARENT = "PTRUN_PARENT"
"""The variable in a rank's environment that holds the id of its parent process."""
_PDEATHSIG = 1  # prctl(2)
_LOOK_EVERY = 1.0  # seconds


def exit_with_parent(env: Mapping[str, str]) -> None:
    """Kill this process as soon as its parent is gone."""
    parent = int(env[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY)
        os._exit(1)

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=watch, daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


# Files between a launcher and its ranks: the configuration to the ranks, errors back.


@dataclass(frozen=True)
class RankError:
    """The error that ended a rank: its class, text and time (seconds, wall clock)."""

    kind: str
    text: str
    at: float


def text_of(composed: Composed) -> str:
    """Return a configuration as JSON, or as YAML where JSON changes it: it has no number keys."""
    content = {entry.name: getattr(composed, entry.name) for entry in fields(composed)}
    text = json.dumps(content)
    return text if json.loads(text) == content else plain_yaml.dump(content)


def read_text(text: str) -> Composed:
    """Return the configuration of a text."""
    return Composed(**(json.loads(text) if text[:1] == "{" else plain_yaml.load_plain(text)))


def write_error(folder: Path, rank: int, error: BaseException) -> None:
    """Write the error that ends this rank."""
    record = RankError(type(error).__name__, str(error), time.time())
    draft = folder / f".rank{rank}"
    draft.write_text(json.dumps(asdict(record)), encoding="utf-8")
    draft.replace(folder / f"rank{rank}.json")


def read_error(folder: Path, rank: int) -> RankError | None:
    """Return the error that a rank wrote, or None."""
    file = folder / f"rank{rank}.json"
    return RankError(**json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None
