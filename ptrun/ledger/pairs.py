"""The paired difference of two methods on the same seeds of the same cell, with its p-value.

A pair needs four common seeds: with fewer, no p-value can be small.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from ptrun.ledger.cells import grouped
from ptrun.ledger.rows import Row
from ptrun.ledger.statistics import paired


@dataclass(frozen=True)
class Pair:
    """One method compared with another.

    Args:
        other: the other method.
        protocol: the protocol of both.
        seeds: the number of common seeds.
        difference: the mean of this method's scores minus the other's.
        p: the two-sided p-value of sign flips.
    """

    other: str
    protocol: str
    seeds: int
    difference: float
    p: float


def pairs(rows: Sequence[Row]) -> dict[int, list[Pair]]:
    """Return the pairs of each row, by the row's index."""
    found: dict[int, list[Pair]] = defaultdict(list)
    for group in grouped(range(len(rows)), lambda index: _place(rows[index])).values():
        for one, two in permutations(group, 2):
            found[one] += _both(rows[one], rows[two])
    return found


def _place(row: Row) -> tuple[str, ...]:
    return (*(row.cell.at[axis] for axis in ("backbone", "setting", "task")), row.cell.metric)


def _both(row: Row, other: Row) -> Iterator[Pair]:
    """Yield the pair of each protocol."""
    name = other.cell.at["method"]
    sides = (("paper", row.paper, other.paper), ("honest", row.honest, other.honest))
    for protocol, a, b in sides:
        if a and b and (pair := _pair(name, protocol, a.scores, b.scores)):
            yield pair


def _pair(
    name: str, protocol: str, first: Mapping[int, float], second: Mapping[int, float]
) -> Pair | None:
    common = sorted(first.keys() & second.keys())
    left, right = [first[seed] for seed in common], [second[seed] for seed in common]
    p = paired(left, right)
    if p is None:
        return None
    return Pair(name, protocol, len(common), (sum(left) - sum(right)) / len(common), p)
