"""Groups of runs that share the passes of one frozen backbone."""

from collections.abc import Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def groups(items: Sequence[tuple[Hashable | None, T]], most: int, workers: int) -> list[list[T]]:
    """Return items in groups of equal shapes, at most `most` each, in order of their first items.

    With fewer shapes than workers, groups are smaller, so that each worker has one. An item whose
    shape is None is a group of its own.
    """
    size = max(1, min(most, -(-len(items) // workers)))
    by_shape: dict[Hashable, list[list[T]]] = {}
    found: list[list[T]] = []
    for shape, item in items:
        own = by_shape.setdefault(shape, []) if shape is not None else []
        if not own or len(own[-1]) == size:
            own.append([])
            found.append(own[-1])
        own[-1].append(item)
    return found
