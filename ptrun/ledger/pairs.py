"""Two methods on the same seeds of the same cell: their difference, and a p-value where it can be.

Of fewer than four common seeds nothing is said: no p-value of theirs could be small.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from ptrun.ledger.rows import Ours, Row
from ptrun.ledger.statistics import paired

LEAST = 4


@dataclass(frozen=True)
class Pair:
    """One method beside another.

    Args:
        other: the other method.
        protocol: under which both were run.
        seeds: how many they have in common.
        difference: the mean of the differences, this one less the other.
        p: of sign flips, two-sided.
    """

    other: str
    protocol: str
    seeds: int
    difference: float
    p: float


def pairs(rows: Sequence[Row]) -> dict[int, list[Pair]]:
    """Return the pairs of each row, by its index."""
    alike: Mapping[tuple[str, ...], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        at = row.cell.at
        if row.paper or row.honest:
            alike[at["backbone"], at["setting"], at["task"], row.cell.metric].append(index)
    found: dict[int, list[Pair]] = defaultdict(list)
    for group in alike.values():
        for one, two in permutations(group, 2):
            found[one] += _both(rows[one], rows[two])
    return found


def _both(row: Row, other: Row) -> list[Pair]:
    name = other.cell.at["method"]
    beside = (("paper", row.paper, other.paper), ("honest", row.honest, other.honest))
    made = (_pair(name, protocol, a, b) for protocol, a, b in beside if a and b)
    return [pair for pair in made if pair]


def _pair(name: str, protocol: str, first: Ours, second: Ours) -> Pair | None:
    common = sorted(first.scores.keys() & second.scores.keys())
    if len(common) < LEAST:
        return None
    left = [first.scores[seed] for seed in common]
    right = [second.scores[seed] for seed in common]
    p = paired(left, right)
    if p is None:
        return None
    return Pair(name, protocol, len(common), (sum(left) - sum(right)) / len(common), p)
