"""The entities of the pocket world, drawn from the name pools."""

import random
from typing import Any

from ptrun.pocket import naming
from ptrun.pocket.entity import Entity
from ptrun.pocket.lexicon import table

RESERVED_SHARE = 0.4
HIDDEN_SHARE = 0.15  # of the reserved entities
TOWN_PATTERNS = ("{}",) * 7 + ("Port {}", "Upper {}", "New {}")


def entities(rng: random.Random) -> dict[str, tuple[Entity, ...]]:
    """Return every entity by kind; names are unique within a kind, never between kinds."""
    opened, kept = naming.pools(rng)
    by_kind: dict[str, tuple[Entity, ...]] = {}
    for kind, count in table("world")["entities"].items():
        reserved = round(count * RESERVED_SHARE)
        by_name: dict[str, Entity] = {}
        _add(by_name, kind, count - reserved, opened, by_kind, rng)
        _add(by_name, kind, count, kept, by_kind, rng)
        by_kind[kind] = tuple(by_name.values())
    return by_kind


def _add(
    by_name: dict[str, Entity],
    kind: str,
    upto: int,
    pool: naming.Pools,
    by_kind: dict[str, tuple[Entity, ...]],
    rng: random.Random,
) -> None:
    """Add entities with new names until there are `upto`, or the pool seems empty."""
    towns = [t.name for t in by_kind.get("town", ()) if t.reserved == pool.reserved]
    for _ in range(20 * upto):
        if len(by_name) == upto:
            return
        fields = _fields(kind, pool, towns, rng)
        hidden = pool.reserved and rng.random() < HIDDEN_SHARE
        name = f"{kind}-{len(by_name)}"
        entity = Entity(name, kind, reserved=pool.reserved, hidden=hidden, **fields)
        by_name.setdefault(entity.name, entity)


def stranger(kind: str, towns: list[str], taken: set[str], rng: random.Random) -> Entity:
    """Return a new entity of a kind whose name is not in `taken`."""
    while True:
        fields = _fields(kind, naming.everything(), towns, rng)
        if fields["name"] not in taken:
            return Entity(f"{kind}-x", kind, **fields)


def _fields(kind: str, pool: naming.Pools, towns: list[str], rng: random.Random) -> dict[str, Any]:
    if kind == "person":
        return _person(pool, rng)
    if kind == "region":
        return {"name": rng.choice(pool.regions)}
    if kind == "river":
        return {"name": rng.choice(pool.rivers), "article": rng.choice(("the ", "the river "))}
    if kind == "town":
        name = rng.choice(pool.plain if rng.random() < 0.7 else pool.compound)
        return {"name": rng.choice(TOWN_PATTERNS).format(name)}
    name, carrier = naming.from_pattern(kind, pool, towns, rng)
    article = "the " if kind == "paper" or name.startswith("University") else ""
    if kind in ("firm", "club", "school"):
        return {"name": name, "short": (carrier,), "article": article}
    return {"name": name, "article": article}


def _person(pool: naming.Pools, rng: random.Random) -> dict[str, Any]:
    gender = rng.choice("fm")
    given = rng.choice(pool.women if gender == "f" else pool.men)
    family = naming.family(pool, rng)
    name = f"{given} {family}"
    return {"name": name, "short": (family,), "gender": gender, "given": given}
