"""The error that a launcher raises for failed ranks: the first one, how it ended, its output."""

import signal
from collections.abc import Sequence
from pathlib import Path

from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.hardware.processes import End
from ptrun.hardware.rank_files import RankError, read_error

_LINES = 20
_SAME = "The same command resumes from the last save."


def exit_error(ends: Sequence[End], ranks: int, folder: Path) -> Exception | None:
    """Return the error to raise for ranks that ended, or None if all succeeded.

    A UserError that every rank raised is reported once, as from one process.
    """
    errors = {end: read_error(folder, end.rank) for end in ends if end.code}
    if not errors:
        return None
    first, error = min(errors.items(), key=_order)
    if error and error.kind == "RunFailed":
        return RunFailed(error.text)
    if error and error.kind == "UserError":
        same = len(errors) == ranks and {e and e.text for e in errors.values()} == {error.text}
        plain = same or first.rank == 0  # rank 0 may check before the others do
        return UserError(error.text if plain else f"rank {first.rank} of {ranks}: {error.text}")
    others = "; the others were ended" if ranks > 1 else ""
    line = f"rank {first.rank} of {ranks} {_how(first, error)}{others}."
    return RankLost("\n".join([line, *_last_lines(first, folder), _SAME]))


def _order(failure: tuple[End, RankError | None]) -> tuple[bool, float]:
    """Order by time, signals first: a killed rank makes the others fail."""
    end, error = failure
    return end.code > 0, error.at if error else end.at


def _how(end: End, error: RankError | None) -> str:
    if end.code < 0:
        name = signal.Signals(-end.code).name if -end.code in set(signal.Signals) else "unnamed"
        memory = ", as a machine out of memory does" if name == "SIGKILL" else ""
        return f"was killed by signal {-end.code} ({name}{memory})"
    text = f": {error.kind}: {error.text.strip()}" if error else ""
    return f"ended with exit code {end.code}{text}"


def _last_lines(end: End, folder: Path) -> list[str]:
    """Return the last lines of a rank's output; those of rank 0 were shown already."""
    file = folder / f"rank{end.rank}.err"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if end.rank else []
    return [f"  {line}" for line in lines[-_LINES:]]
