"""Starts the ranks of a run on this machine, and waits for them."""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ptrun.config.compose import Composed
from ptrun.config.schema import HardwareConfig
from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.hardware import processes
from ptrun.hardware.environment import cores
from ptrun.hardware.processes import RankEnd, read_error, work

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
        (folder / "run.yaml").write_text(processes.text_of(composed), encoding="utf-8")
        with socket.socket() as opened:
            opened.bind(("127.0.0.1", 0))
            port: int = opened.getsockname()[1]  # a free one
        common = {
            "OMP_NUM_THREADS": str(max(1, cores() // ranks)),  # the share of the cores
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            processes.PARENT: str(os.getpid()),
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        each = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
        environments = [common | numbers for numbers in each]
        ends = work([*command, str(folder / "run.yaml")], environments, folder)
        problem = exit_error(ends, ranks, folder)
    if problem is not None:
        raise problem


# The error that a launcher raises for failed ranks: the first one, how it ended, its output.

_LINES = 20


def exit_error(ends: Sequence[RankEnd], ranks: int, folder: Path) -> Exception | None:
    """Return the error to raise for ranks that ended, or None if all succeeded.

    A UserError that every rank raised is reported once, as from one process.
    """
    errors = {end: read_error(folder, end.rank) for end in ends if end.code}
    if not errors:
        return None
    # the first in time, signals first: a killed rank makes the others fail
    end, error = min(errors.items(), key=lambda pair: (pair[0].code > 0, (pair[1] or pair[0]).at))
    if error and error.kind == "RunFailed":
        return RunFailed(error.text)
    if error and error.kind == "UserError":
        same = len(errors) == ranks and {e and e.text for e in errors.values()} == {error.text}
        plain = same or end.rank == 0  # rank 0 may check before the others do
        return UserError(error.text if plain else f"rank {end.rank} of {ranks}: {error.text}")
    others = "; the others were ended" if ranks > 1 else ""
    if end.code < 0:
        name = signal.Signals(-end.code).name if -end.code in set(signal.Signals) else "unnamed"
        memory = ", as a machine out of memory does" if name == "SIGKILL" else ""
        how = f"was killed by signal {-end.code} ({name}{memory})"
    else:
        text = f": {error.kind}: {error.text.strip()}" if error else ""
        how = f"ended with exit code {end.code}{text}"
    lines = [f"rank {end.rank} of {ranks} {how}{others}."]
    if end.rank:  # the output of rank 0 was shown already
        output = (folder / f"rank{end.rank}.err").read_text(encoding="utf-8", errors="replace")
        lines += [f"  {line}" for line in output.splitlines()[-_LINES:]]
    return RankLost("\n".join([*lines, "The same command resumes from the last save."]))


# The number of ranks of a run, and checks of those that a launcher started.


def local_ranks(hardware: HardwareConfig, gpus: int) -> int:
    """Return the number of ranks to start on this machine, given the number of visible GPUs.

    Ranks without a GPU are refused, and ranks that do not make whole copies of the model.
    """
    width = hardware.model_parallel or 1
    cuda = hardware.device == "cuda" or (hardware.device == "auto" and gpus > 0)
    ranks = hardware.ranks or (gpus if cuda else width)
    if cuda and ranks > gpus:
        raise UserError(
            f"hardware.ranks is {ranks}, but {gpus} GPUs are visible; each rank needs one: type "
            f"hardware.ranks={_fits(gpus, width)}, or hardware.device=cpu."
        )
    if ranks % width:
        origin = "hardware.ranks is" if hardware.ranks else "visible GPUs:"
        raise UserError(
            f"{origin} {ranks}, but the model is divided over {width} ranks "
            f"(hardware.model_parallel); type hardware.ranks={_fits(ranks, width)}."
        )
    return ranks


def check_world(hardware: HardwareConfig, world: int) -> None:
    """Refuse processes of a launcher that all do one run, or do not make whole models."""
    if not hardware.divides:
        if world > 1:
            raise UserError(
                f"a launcher started {world} processes, which would all do the same run; type "
                "hardware=zero1 to share it, or start one process."
            )
        return
    width = hardware.model_parallel or 1
    if world % width:
        raise UserError(
            f"a launcher started {world} ranks, but the model is divided over {width} "
            f"(hardware.model_parallel); start {_fits(world, width)}, or type hardware=zero1."
        )


def _fits(ranks: int, width: int) -> int:
    """Return the most ranks up to `ranks` that make whole copies of the model; at least `width`."""
    return max(width, ranks - ranks % width)
