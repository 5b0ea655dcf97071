"""What a launcher says of ranks that failed: which was the first, how it ended, its last words."""

import signal
from collections.abc import Sequence
from pathlib import Path

from ptrun.errors import RankLost, RunFailed, UserError
from ptrun.hardware.processes import End
from ptrun.hardware.rank_files import read_error

_LINES = 20
_SAME = "The same command goes on from the last save."


def exit_error(ends: Sequence[End], ranks: int, folder: Path) -> Exception | None:
    """Return what to raise for how ranks ended; None if all ended well.

    A mistake that every rank found is told once, as if there were one process.
    """
    failed = [end for end in ends if end.code]
    if not failed:
        return None
    first = min(failed, key=lambda end: _when(end, folder))
    word = read_error(folder, first.rank)
    if word is not None and word.kind == "RunFailed":
        return RunFailed(word.text)
    if word is not None and word.kind == "UserError":
        heard = [read_error(folder, end.rank) for end in failed]
        alike = len(failed) == ranks and all(h is not None and h.text == word.text for h in heard)
        plain = alike or first.rank == 0  # the first may look before the others do
        return UserError(word.text if plain else f"rank {first.rank} of {ranks}: {word.text}")
    return RankLost(_lost(first, ranks, folder))


def _when(end: End, folder: Path) -> tuple[bool, float]:
    """Order by time, signals first: a rank that was killed makes others fail, not they it."""
    word = read_error(folder, end.rank)
    return end.code > 0, word.at if word else end.at


def _lost(end: End, ranks: int, folder: Path) -> str:
    rest = "; the others were ended" if ranks > 1 else ""
    return "\n".join(
        [f"rank {end.rank} of {ranks} {_how(end, folder)}{rest}.", *_last(end, folder), _SAME]
    )


def _how(end: End, folder: Path) -> str:
    if end.code < 0:
        name = signal.Signals(-end.code).name if -end.code in set(signal.Signals) else "unnamed"
        memory = ", as a machine out of memory does" if name == "SIGKILL" else ""
        return f"was killed by signal {-end.code} ({name}{memory})"
    word = read_error(folder, end.rank)
    said = f": {word.kind}: {word.text.strip()}" if word else ""
    return f"ended with exit code {end.code}{said}"


def _last(end: End, folder: Path) -> list[str]:
    """Return the last lines a rank wrote; those of rank 0 were shown as they came."""
    file = folder / f"rank{end.rank}.err"
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if end.rank else []
    return [f"  {line}" for line in lines[-_LINES:]]
