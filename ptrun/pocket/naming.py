"""Draw names: families called like towns, firms like people, books like any of them.

Each drawn name says whether it uses a reserved part (see names.toml).
"""

import random
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
    plain: tuple[str, ...]
    compound: tuple[str, ...]
    women: tuple[str, ...]
    men: tuple[str, ...]
    nouns: tuple[str, ...]
    rivers: tuple[str, ...]
    regions: tuple[str, ...]


def pools(rng: random.Random) -> tuple[Pools, Pools]:
    """Return the open and the reserved name parts; compound names are dealt out by `rng`."""
    heads, tails = words("names", "heads"), words("names", "tails")
    compounds = [head + tail for head in heads for tail in tails]
    rng.shuffle(compounds)
    cut = SHARE_OF_COMPOUNDS + RESERVED_COMPOUNDS
    opened, kept = compounds[:SHARE_OF_COMPOUNDS], compounds[SHARE_OF_COMPOUNDS:cut]
    return _pools("", tuple(opened)), _pools("_reserved", tuple(kept))


@cache
def everything() -> Pools:
    """Return all name parts together, for people and places that only one document knows."""
    compounds = tuple(h + t for h in words("names", "heads") for t in words("names", "tails"))
    opened = _pools("", compounds)
    return Pools(
        False,
        opened.plain + words("names", "plain_reserved"),
        compounds,
        opened.women + words("names", "women_reserved"),
        opened.men + words("names", "men_reserved"),
        opened.nouns + words("names", "noun_reserved"),
        opened.rivers + words("names", "rivers_reserved"),
        opened.regions + words("names", "regions_reserved"),
    )


def _pools(suffix: str, compounds: tuple[str, ...]) -> Pools:
    def part(key: str) -> tuple[str, ...]:
        own = words("names", key + suffix)
        return own * REPEATS + words("names", key) if suffix else own

    return Pools(
        bool(suffix),
        part("plain"),
        compounds,
        part("women"),
        part("men"),
        part("noun"),
        part("rivers"),
        part("regions"),
    )


def family(pool: Pools, rng: random.Random) -> str:
    """Return a family name; three in four are also names of towns."""
    return rng.choice(pool.plain if rng.random() < 0.75 else pool.compound)


def from_pattern(kind: str, pool: Pools, towns: list[str], rng: random.Random) -> tuple[str, str]:
    """Return a name made from one of the kind's patterns, and the short form it allows.

    The short form is the family, town or noun that carries the name, such as Marlow in
    "Marlow & Sons", or the name itself.
    """
    pattern = rng.choice(table("names")[kind])
    parts = {"F": family, "P": _any_family}
    out: list[str] = []
    carrier = ""
    for token in pattern.split():
        word = token
        if token in parts:
            word = parts[token](pool, rng)
        elif token == "T":
            word = rng.choice(towns)
        elif token in _LISTS:
            word = _from_list(token, pool, rng) + (
                "s" if token == "N" and out and out[0] in PLURAL else ""
            )
        if token in ("F", "T") and not carrier:
            carrier = word
        out.append(word)
    return _with_article(out), carrier or " ".join(out)


def _any_family(pool: Pools, rng: random.Random) -> str:
    return rng.choice(pool.plain + pool.compound)


_LISTS = ("G", "C", "N", "D")


def _from_list(token: str, pool: Pools, rng: random.Random) -> str:
    if token == "G":
        return rng.choice(pool.women + pool.men)
    if token == "N":
        return rng.choice(pool.nouns)
    return rng.choice(words("names", "common" if token == "C" else "day"))


def _with_article(parts: list[str]) -> str:
    for i, (part, following) in enumerate(pairwise(parts)):
        if part in ("A", "a") and following[0] in "AEIOU":
            parts[i] = part + "n"
    return " ".join(parts)
