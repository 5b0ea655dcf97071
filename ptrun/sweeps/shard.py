"""`sweep.shard=I/N`: a part of a list of runs, for workers that number themselves."""

import re
from collections.abc import Sequence
from typing import TypeVar

from ptrun.errors import UserError

T = TypeVar("T")


def shard(items: Sequence[T], given: str | None) -> Sequence[T]:
    """Return the I-th of N parts, counted from 1, of equal size up to one; None is all.

    Neighbours stay together, since they are those that share passes. The parts depend on the list
    alone, not on what is finished, so the workers need not know of each other.

    Raises:
        UserError: it is not `I/N` with 1 <= I <= N.
    """
    if given is None:
        return items
    match = re.fullmatch(r"(\d+)/(\d+)", str(given))
    place, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= place <= count:
        raise UserError(f"sweep.shard={given}: type I/N with I from 1 to N, such as 1/4.")
    return items[(place - 1) * len(items) // count : place * len(items) // count]
