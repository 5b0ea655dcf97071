"""Starts the ranks of a run on this machine, and waits for them."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from ptrun.config.compose import Composed
from ptrun.hardware import parent_watch, rank_files
from ptrun.hardware.exit_report import exit_error
from ptrun.hardware.processes import work

COMMAND = (sys.executable, "-P", "-m", "ptrun.run.rank")
"""`-P` keeps the current folder out of the import path, as in the launcher."""
_ENDS = (signal.SIGTERM, signal.SIGHUP)


def start(composed: Composed, ranks: int, command: Sequence[str] = COMMAND) -> None:
    """Run `command` with the file of a configuration as `ranks` processes.

    Raises:
        UserError, RunFailed: as a run in this process.
        RankLost: a rank died.
    """
    with TemporaryDirectory(prefix="ptrun-") as name, _exit_on_signals():
        folder = Path(name)
        rank_files.write(folder / "run.yaml", composed)
        port = _free_port()
        environments = [_environment(os.environ, rank, ranks, port) for rank in range(ranks)]
        ends = work([*command, str(folder / "run.yaml")], environments, folder)
        problem = exit_error(ends, ranks, folder)
    if problem is not None:
        raise problem


def _environment(env: Mapping[str, str], rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the environment of a rank, with its share of the cores."""
    return {
        "OMP_NUM_THREADS": str(max(1, _cores() // ranks)),
        **env,
        "PYTHONPATH": os.pathsep.join(sys.path),
        parent_watch.PARENT: str(os.getpid()),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _cores() -> int:
    """Return the cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into an exit that ends the ranks first, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
