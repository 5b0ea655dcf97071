"""Cut the rows of a step into micro-batches with little padding.

Rows are sorted by length and cut where lengths change. Dynamic programming over distinct lengths
finds the cuts with the fewest padded tokens, plus a fixed cost in tokens for each micro-batch.
"""

from collections.abc import Sequence

OVERHEAD = 48
"""Fixed cost of a micro-batch in tokens, measured with BERT-base."""

_BASE_WEIGHTS = 12 * 12 * 768**2


def overhead(layers: int, hidden_size: int) -> int:
    """Return the fixed cost of a micro-batch in a model's tokens; small models have more."""
    return round(OVERHEAD * _BASE_WEIGHTS / (12 * layers * hidden_size**2))


def cut(lengths: Sequence[int], budget: int, price: int = OVERHEAD) -> list[list[int]]:
    """Return row indices in micro-batches of at most `budget` padded tokens, longest rows last.

    `price` is the fixed cost of a micro-batch. A row longer than the budget gets its own
    micro-batch. Rows of equal length keep their order.
    """
    if not lengths:  # there are fewer rows than processes
        return []
    order = sorted(range(len(lengths)), key=lambda row: lengths[row])
    starts = _cuts([lengths[row] for row in order], budget, price)
    return [order[a:b] for a, b in zip(starts, [*starts[1:], len(order)], strict=True)]


def fill(lengths: Sequence[int], owners: Sequence[int], budget: int) -> list[list[int]]:
    """Return row indices in micro-batches of at most `budget` real tokens.

    The micro-batches have about the same number of tokens. A row longer than the budget gets its
    own. The rows of a member stay together, its longest last: each member then has inputs in few
    micro-batches. Rows of any lengths can share one, because they are packed.
    """
    order = sorted(range(len(lengths)), key=lambda row: (owners[row], lengths[row]))
    share = sum(lengths) / max(1, -(-sum(lengths) // budget))
    parts: list[list[int]] = []
    held, done = 0, 0  # tokens of the last micro-batch, and of all before it
    for row in order:
        if not parts or held + lengths[row] > budget or done + held >= share * len(parts):
            parts, done, held = [*parts, []], done + held, 0
        parts[-1].append(row)
        held += lengths[row]
    return parts


def _cuts(sorted_lengths: Sequence[int], budget: int, price: int) -> list[int]:
    """Return the starts of the cheapest micro-batches among all cuts at `_edges`."""
    edges = _edges(sorted_lengths, budget)
    cost, previous = {0: 0}, {}
    for index, end in enumerate(edges[1:], start=1):
        width = sorted_lengths[end - 1]
        options = []
        for start in reversed(edges[:index]):
            tokens = (end - start) * width
            if tokens > budget and start != edges[index - 1]:
                break
            options.append((cost[start] + tokens + price, start))
        cost[end], previous[end] = min(options)
    starts, end = [], edges[-1]
    while end:
        end = previous[end]
        starts.append(end)
    return starts[::-1]


def _edges(sorted_lengths: Sequence[int], budget: int) -> list[int]:
    """Return allowed cuts: at changes of length, and inside long runs of one length."""
    edges, start = [0], 0
    for row, length in enumerate(sorted_lengths):
        if length != sorted_lengths[start]:
            edges.append(row)
            start = row
        elif row > edges[-1] and (row - edges[-1] + 1) * length > budget:
            edges.append(row)
    return [*edges, len(sorted_lengths)]


def padding(lengths: Sequence[int], parts: Sequence[Sequence[int]]) -> float:
    """Return the share of computed tokens that are padding, 0-1."""
    computed = sum(len(part) * max(lengths[row] for row in part) for part in parts)
    return 1 - sum(lengths) / computed
