"""The one-to-one assignment of rows to columns with the largest total weight."""

from collections.abc import Sequence

_Weights = Sequence[Sequence[float]]
_NOISE = 1e-12  # a smaller gain is rounding, and could lead to an endless loop


def best_assignment(weights: _Weights) -> list[tuple[int, int]]:
    """Return (row, column) pairs in row order; some items of the longer side stay unpaired."""
    if not weights or not weights[0]:
        return []
    if len(weights) > len(weights[0]):
        transposed = best_assignment(list(zip(*weights, strict=True)))
        return sorted((row, column) for column, row in transposed)
    row_of: list[int | None] = [None] * len(weights[0])
    for row in range(len(weights)):
        _add(row, weights, row_of)
    return sorted((row, column) for column, row in enumerate(row_of) if row is not None)


def _add(row: int, weights: _Weights, row_of: list[int | None]) -> None:
    """Assign a column to a new row, and move earlier rows if that increases the total."""
    gain, giver = _gains(row, weights, row_of)
    free = [column for column, holder in enumerate(row_of) if holder is None]
    column = max(free, key=lambda c: gain[c])
    while (source := giver[column]) is not None:
        row_of[column], column = row_of[source], source
    row_of[column] = row


def _gains(
    row: int, weights: _Weights, row_of: Sequence[int | None]
) -> tuple[list[float], list[int | None]]:
    """Return, for each column, the best gain of a chain of moves, and the column before it.

    The new row moves first. Each further move is made by the row whose column was taken. Repeat
    until nothing improves (Bellman-Ford). No cycle gains, because `row_of` is optimal so far.
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
