"""The parts of the drill: their kinds of cases, how many there are of each, and what does them."""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from workshop.drill import damage, disk, kills, strangers, vanishing
from workshop.drill.ends import Ended
from workshop.drill.works import WORKS
from workshop.drill.world import World

_TWICE = 1.8  # kills of a case, on average; its second moment may come too late
_SLOW = {
    "state of one rank, resume": 10,
    "journal of a search, search": 10,
    "report of a search, search": 20,
    "owner, resume": 5,
    "journal, resume": 2,
    "labels, train": 2,
    "prompt, start=pretrained": 2,
    "weights, predict": 1,
}
"""Kinds whose command takes seconds get a share of the places."""


@dataclass(frozen=True)
class Part:
    """A part.

    Args:
        title: its heading on the page.
        kinds: returns the rows of its table.
        do: does one case.
        number: returns the number of cases of a row.
        how: returns what is said of it on the page.
    """

    title: str
    kinds: Callable[[], Sequence[str]]
    do: Callable[[World, str, int, int], Ended]
    number: Callable[[argparse.Namespace, str], int]
    how: Callable[[], str]


@cache
def _has_disk() -> bool:
    return disk.can_mount()


def _full(world: World, kind: str, number: int, seed: int) -> Ended:
    return (disk.full if _has_disk() else disk.limited)(world, kind, number, seed)


def _killed(given: argparse.Namespace, _: str) -> int:
    return math.ceil(int(given.kills) / len(kills.KINDS) / _TWICE)


def _few(given: argparse.Namespace, _: str) -> int:
    return int(given.cases)


def _places(given: argparse.Namespace, kind: str) -> int:
    return math.ceil(int(given.places) / _SLOW.get(kind, 1))


KILLED = """\
SIGKILL (two of three) or SIGTERM hits a command, or one of the processes it started, at a random
moment; the same command is typed again, twice killed at most, until it has finished. Runs save at
every step here. What is left must be what an undisturbed command leaves: metrics, journal with each
step once, tensors, labelled lines, weights, files, to the last bit. `workshop.random_model` saves
nothing before its end: it starts over."""
STARVED = """\
The output and the temporary files of a command are on a tmpfs of a random size below what it needs.
Then the disk gets larger, and the same command is typed again."""
LIMITED = """\
This user may not mount a tmpfs: no file may be larger than a random size (RLIMIT_FSIZE) below that
of the largest file. Then the same command is typed again without the limit."""
READ_ONLY = """\
The output of a command is on a file system that cannot be written; then on one that can."""
REMOVED = """\
The folder with a command's output is removed at a random moment while it writes; then the same
command is typed again."""
MOVED = """\
The folder with data and model is moved away at a random moment while a command runs, and moved back
before the same command is typed again."""
DAMAGED = """\
A file is damaged at a random place: three of four times one bit is flipped, else the file is cut.
The command that reads it must give the answer of the undamaged file, heal the damage with a word,
or refuse and name the file."""

STRANGERS = """\
A link, a pipe, a device, a file of 9 GiB, a value of another type (with the right digest), a
`ptrun_conf`, or a name is planted where a command reads or writes. The command may refuse or go on.
`wrong` is a change outside the folder of outputs, a variable of the environment in a file or on the
screen, or a control character on the screen."""

PARTS = {
    "kills": Part("Killed processes", lambda: kills.KINDS, kills.do, _killed, lambda: KILLED),
    "disk": Part(
        "A full disk", lambda: list(WORKS), _full, lambda given, _: 2 * given.cases,
        lambda: STARVED if _has_disk() else LIMITED,
    ),
    "read-only": Part(
        "A folder that cannot be written", lambda: list(WORKS) if _has_disk() else [],
        disk.read_only, lambda given, _: 1, lambda: READ_ONLY,
    ),
    "output": Part(
        "Output that is removed", lambda: vanishing.KINDS, vanishing.output, _few, lambda: REMOVED
    ),
    "data": Part(
        "Data that are moved away", lambda: vanishing.KINDS, vanishing.data, _few, lambda: MOVED
    ),
    "damage": Part(
        "Damaged files", lambda: list(damage.KINDS), damage.do, _places, lambda: DAMAGED
    ),
    "strangers": Part(
        "Files of somebody else", lambda: strangers.KINDS, strangers.do,
        lambda given, _: math.ceil(given.strangers / len(strangers.KINDS)), lambda: STRANGERS,
    ),
}  # fmt: skip
