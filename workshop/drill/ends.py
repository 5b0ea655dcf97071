"""How cases end: the words of the tables, and who says which one it is."""

import re
from dataclasses import dataclass
from pathlib import Path

from workshop.drill.warm import Called

ENDS = ("same", "healed", "refused", "unclear", "traceback", "lost", "wrong")
"""`same`: the fault changes nothing. `unclear`: refused without the name of the file."""
BAD = ("traceback", "lost", "wrong")
"""Ends that must not be."""
_DRAFT = re.compile(r"\..+\.\d+(\.partial)?|.+\.part")


@dataclass(frozen=True)
class Ended:
    """How a case ended.

    Args:
        kind: the row of the table.
        end: one of `ENDS`.
        what: the fault.
        said: the end of what the command printed.
        faults: faults of the case.
        drafts: files of killed processes that are left.
    """

    kind: str
    end: str
    what: str = ""
    said: str = ""
    faults: int = 1
    drafts: int = 0


def has_traceback(done: Called) -> bool:
    """Return whether a command printed a traceback."""
    return "Traceback (most recent call last)" in done.err + done.out


def of_damage(done: Called, answer: str, expected: str, file: Path) -> str:
    """Return how a command that read a damaged file ended.

    A file is named by its name or by that of its folder.
    """
    told = done.err + done.out
    named = file.name in told or file.parent.name in told
    if has_traceback(done):
        return "traceback"
    if done.code == 0:
        warned = "damaged" in done.err and named
        if answer != expected:
            return "healed" if warned else "wrong"
        return "healed" if "made again" in done.err else "same"
    if done.code != 1:
        return "lost"
    return "refused" if named else "unclear"


def of_fault(first: Called, again: Called, answer: str, expected: str, path: Path) -> str:
    """Return how a command ended: after a fault of `path` first, then once that has passed."""
    if has_traceback(first) or has_traceback(again):
        return "traceback"
    if first.code not in (0, 1) or (again.code != 0 and answer != expected):
        return "lost"
    if answer != expected:
        return "wrong"
    if first.code == 0:
        return "same"
    return "refused" if names(first, path) else "unclear"


def names(done: Called, path: Path) -> bool:
    """Return whether the last lines that a command printed name a path or what is below it."""
    return any(str(path) in line for line in done.err.strip().splitlines()[-3:])


def drafts(folder: Path) -> int:
    """Return the number of drafts below a folder."""
    return sum(bool(_DRAFT.fullmatch(file.name)) for file in folder.rglob("*"))
