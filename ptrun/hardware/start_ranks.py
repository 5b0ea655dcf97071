"""Starts the ranks of a run on this machine, and waits for them."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ptrun.config.compose import Composed
from ptrun.hardware import parent_watch, rank_files
from ptrun.hardware.cpu import cores
from ptrun.hardware.exit_report import exit_error
from ptrun.hardware.processes import work

COMMAND = (sys.executable, "-P", "-m", "ptrun.runs.rank")
"""`-P` keeps the current folder out of the import path, as in the launcher."""


def start(composed: Composed, ranks: int, command: Sequence[str] = COMMAND) -> None:
    """Run `command` with the file of a configuration as `ranks` processes.

    Raises:
        UserError, RunFailed: as a run in this process.
        RankLost: a rank died.
        Stopped: a signal arrived; the ranks saved at their next step.
    """
    with TemporaryDirectory(prefix="ptrun-") as name:
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
        "OMP_NUM_THREADS": str(max(1, cores() // ranks)),
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


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port
