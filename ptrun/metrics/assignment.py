"""The 1-1 assignment of rows to columns with the largest total weight."""

from collections.abc import Sequence

_Weights = Sequence[Sequence[float]]
_NOISE = 1e-12  # a detour that gains less is rounding, and could turn in circles


def best_assignment(weights: _Weights) -> list[tuple[int, int]]:
    """Return (row, column) pairs in row order; the longer side leaves some unpaired."""
    if not weights or not weights[0]:
        return []
    if len(weights) > len(weights[0]):
        turned = best_assignment(list(zip(*weights, strict=True)))
        return sorted((row, column) for column, row in turned)
    row_of: list[int | None] = [None] * len(weights[0])
    for row in range(len(weights)):
        _add(row, weights, row_of)
    return sorted((row, column) for column, row in enumerate(row_of) if row is not None)


def _add(row: int, weights: _Weights, row_of: list[int | None]) -> None:
    """Give the new row a column at the largest total, moving earlier rows along if that pays."""
    gain, giver = _gains(row, weights, row_of)
    free = [column for column, holder in enumerate(row_of) if holder is None]
    column = max(free, key=lambda c: gain[c])
    while (source := giver[column]) is not None:
        row_of[column], column = row_of[source], source
    row_of[column] = row


def _gains(
    row: int, weights: _Weights, row_of: Sequence[int | None]
) -> tuple[list[float], list[int | None]]:
    """Return the best gain of a chain of moves that ends in each column, and whence it comes.

    The first move is the new row's; each next one takes the row whose column was taken. Repeats
    until nothing improves (Bellman-Ford): no circle gains, since `row_of` is optimal so far.
    """
    gain = list(weights[row])
    giver: list[int | None] = [None] * len(row_of)
    held = [(column, holder) for column, holder in enumerate(row_of) if holder is not None]
    moves = [(a, b, weights[r][b] - weights[r][a]) for a, r in held for b in range(len(row_of))]
    improved = True
    while improved:
        improved = False
        for a, b, change in moves:
            if gain[a] + change > gain[b] + _NOISE:
                gain[b], giver[b], improved = gain[a] + change, a, True
    return gain, giver
