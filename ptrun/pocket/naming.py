"""Names of entities: families are called like towns, firms like people, books like any of them.

Names of the reserved half of the world prefer reserved parts (see names.toml).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ptrun.pocket.lexicon import table, words

PLURAL = ("Two", "Three")
SHARE_OF_COMPOUNDS = 60
RESERVED_COMPOUNDS = 20
REPEATS = 4  # how much likelier a reserved part is than an open one in a reserved name


@dataclass(frozen=True)
class Pools:
    """Name parts of one half of the world: open to training rows, or reserved."""

    reserved: bool
    compound: tuple[str, ...]
    plain: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    noun: tuple[str, ...]
    rivers: tuple[str, ...]
    regions: tuple[str, ...]


def pools(rng: random.Random) -> tuple[Pools, Pools]:
    """Return the open and the reserved name parts; `rng` divides the compound names."""
    compounds = _compounds()
    rng.shuffle(compounds)
    cut = SHARE_OF_COMPOUNDS + RESERVED_COMPOUNDS
    opened, kept = compounds[:SHARE_OF_COMPOUNDS], compounds[SHARE_OF_COMPOUNDS:cut]
    return (
        _pools(False, opened, lambda key: words("names", key)),
        _pools(True, kept, lambda k: words("names", f"{k}_reserved") * REPEATS + words("names", k)),
    )


@cache
def everything() -> Pools:
    """Return all name parts together, for people and places of a single document."""
    return _pools(
        False, _compounds(), lambda k: words("names", k) + words("names", f"{k}_reserved")
    )


def _compounds() -> list[str]:
    return [head + tail for head in words("names", "heads") for tail in words("names", "tails")]


def _pools(reserved: bool, compounds: list[str], part: Callable[[str], tuple[str, ...]]) -> Pools:
    names = ("plain", "women", "men", "noun", "rivers", "regions")
    return Pools(reserved, tuple(compounds), *map(part, names))


def family(pool: Pools, rng: random.Random) -> str:
    """Return a family name; three in four are also names of towns."""
    return rng.choice(pool.plain if rng.random() < 0.75 else pool.compound)


def from_pattern(kind: str, pool: Pools, towns: list[str], rng: random.Random) -> tuple[str, str]:
    """Return a name made from one of the kind's patterns, and the short form it allows.

    The short form is the first family or town in the name, such as Marlow in "Marlow & Sons", or
    the name itself.
    """
    parts: list[str] = []
    carrier = ""
    for letter in rng.choice(table("names")[kind]).split():
        part = _part(letter, pool, towns, rng)
        if letter == "N" and parts and parts[0] in PLURAL:
            part += "s"
        if letter in ("F", "T") and not carrier:
            carrier = part
        parts.append(part)
    for i, (part, following) in enumerate(pairwise(parts)):
        if part in ("A", "a") and following[0] in "AEIOU":
            parts[i] = part + "n"
    name = " ".join(parts)
    return name, carrier or name


def _part(letter: str, pool: Pools, towns: list[str], rng: random.Random) -> str:
    """Return the words for a letter of a pattern; any other part stands for itself."""
    if letter == "F":
        return family(pool, rng)
    lists: dict[str, Sequence[str]] = {
        "P": pool.plain + pool.compound,
        "T": towns,
        "G": pool.women + pool.men,
        "N": pool.noun,
        "C": words("names", "common"),
        "D": words("names", "day"),
    }
    return rng.choice(lists[letter]) if letter in lists else letter
