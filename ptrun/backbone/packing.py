"""Pack the real tokens of a batch into one long row, so that linear maps compute no padding.

Rows of similar length form a block. Attention runs block by block, and everything else on all
tokens at once. Rows are padded to the longest row of their block only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Positions, on_device

BLOCK = 16
"""The cost of one more block, in tokens. On two cores, with MiniLM and BERT-base, any value from 8
to 64 is as fast within 9 %. A constant gives the same cuts, and so the same bits, each time."""


@dataclass(frozen=True)
class Reach:
    """Which tokens of its row a token sees; it always sees the prefix.

    Args:
        before, after: how many real tokens before and after it; None is all.

    >>> import torch
    >>> from ptrun.backbone.packing import Reach
    >>> Reach(before=1, after=0)(torch.ones(1, 3, dtype=torch.bool))[0, 0].int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """

    before: int | None = None
    after: int | None = None

    def __call__(self, mask: Tensor, queries: int | None = None) -> Tensor | None:
        """Return which keys each token sees, bool `[b, 1, 1 or t, s]`; None if it sees all.

        Of the `mask [b, s]`, only the last `queries` tokens count; None is all. Padding sees
        itself: a softmax over no keys is NaN. A single query is real. On a GPU full rows get a
        mask too: the host would wait for its values.
        """
        columns = mask[:, None, None, :]
        if self == EVERY or (queries == 1 and self.after == 0):
            if self.before is not None:
                order = mask.int().cumsum(dim=1)
                columns = columns & (order[:, -1:] - order <= self.before)[:, None, None]
            # memory counts full rows; a GPU has no answer without a wait
            full = columns.is_meta or (columns.is_cpu and bool(columns.all()))
            return None if full else columns
        width = mask.shape[1]
        place = torch.arange(width, device=mask.device)
        last = slice(width - (queries or width), None)
        ahead = place - place[last, None]  # [t, s]
        seen = mask[:, None, :] & (ahead <= 0) if self.after == 0 else mask[:, None, :]
        if self.before is not None or self.after:
            order = mask.int().cumsum(dim=1)
            far = order[:, last, None] - order[:, None, :]
            near = far <= (width if self.before is None else self.before)
            seen = seen & near & (far >= -(width if self.after is None else self.after))
        return (seen | (ahead == 0))[:, None]

    def within(self, width: int) -> "Reach":
        """Return the same reach for rows of at most `width` tokens, without idle bounds."""
        wide = max(1, width - 1)
        before = None if self.before is None or self.before >= wide else self.before
        return Reach(before, None if self.after is None or self.after >= wide else self.after)


EVERY, LOOK_BACK = Reach(), Reach(after=0)


class Block:
    """Rows of a batch that are padded to one width, and what their tokens see.

    Args:
        mask: `[b, t]`, True at real tokens.

    >>> import torch
    >>> from ptrun.backbone.packing import LOOK_BACK, Block
    >>> Block(torch.ones(1, 3, dtype=torch.bool)).visible(LOOK_BACK, queries=2).int().tolist()
    [[[[1, 1, 0], [1, 1, 1]]]]
    """

    def __init__(self, mask: Tensor):
        self.mask, self.tokens = mask, mask.numel()
        self.rows, self.width = mask.shape
        self._seen: dict[tuple[Reach, int | None], Tensor | None] = {}

    def visible(self, reach: Reach, queries: int | None = None) -> Tensor | None:
        """Return which keys the last `queries` tokens see, bool `[b, 1, 1 or t, s]`; None: all."""
        key = reach.within(self.width), queries
        if key not in self._seen:
            self._seen[key] = key[0](self.mask, queries)
        return self._seen[key]


@dataclass(frozen=True)
class Packing:
    """Where the N tokens of a packed row come from.

    Args:
        blocks: in the order of the tokens; none where attention reads row by row.
        rows, columns: `[N]` cells of the batch `[B, T]`.
        starts: `[B]` index of the first token of each row.
        widths: `[B]` int32, the tokens of each row with its padding.
        mask: `[B, T]`, True at real tokens.
        reach: which tokens of its row a token sees, where a layer has no window.
        order: `[B]` rows in the order of the tokens; None if they keep their order.
        size: B and T.
        tokens: B numbers on the host, the tokens of each row with its padding.

    >>> import torch
    >>> from ptrun.backbone.packing import BLOCK, EVERY, packing_of
    >>> mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]]).bool()
    >>> packing_of(mask, [6, 1], EVERY, BLOCK).pack(torch.arange(12).view(2, 6))
    tensor([[ 6,  7,  8,  9, 10, 11,  0,  1,  2,  3,  4,  5]])
    """

    blocks: Sequence[Block]
    rows: Tensor
    columns: Tensor
    starts: Tensor
    widths: Tensor
    mask: Tensor
    reach: Reach
    order: Tensor | None
    size: tuple[int, int]
    tokens: Sequence[int]

    @cached_property
    def cells(self) -> Tensor:
        """Indices `[N]` into the flattened batch `[B * T]`."""
        return self.rows * self.size[1] + self.columns

    @cached_property
    def real(self) -> Tensor:
        """Which of the tokens are real, `[N]`."""
        return self.mask.flatten().index_select(0, self.cells)

    @property
    def width(self) -> int:
        """The tokens of the longest row."""
        return max((block.width for block in self.blocks), default=self.size[1])

    def pack(self, grid: Tensor | None) -> Tensor | None:
        """Return the tokens `[1, N, ...]` of a batch `[B, T, ...]`."""
        return None if grid is None else grid.flatten(0, 1).index_select(0, self.cells)[None]

    def unpack(self, tokens: Tensor) -> Tensor:
        """Return the batch `[B, T, ...]` of tokens `[1, N, ...]`, with zeros at padding."""
        grid = tokens.new_zeros(self.size[0] * self.size[1], *tokens.shape[2:])
        return grid.index_copy(0, self.cells, tokens[0]).view(*self.size, *tokens.shape[2:])

    def by_block(self, rows: Tensor) -> Sequence[Tensor]:
        """Return the rows `[b, ...]` of each block from those of the batch, `[B, ...]`."""
        ordered = rows if self.order is None else rows[self.order]
        return torch.split(ordered, [block.rows for block in self.blocks])

    def places(self, requests: Sequence[Positions]) -> Tensor:
        """Return the indices `[K]` of positions among the tokens, one list after another."""
        return torch.cat([self.starts[at.rows] + at.columns for at in requests])

    def only(self, places: Tensor) -> "Packing":
        """Return the origin of the tokens at some places alone; it has no blocks."""
        return replace(self, blocks=(), rows=self.rows[places], columns=self.columns[places])


def packing_of(mask: Tensor, lengths: Sequence[int] | None, reach: Reach, price: int) -> Packing:
    """Return the packing of a batch with a bool `mask [B, T]`, whose padding can be anywhere.

    `lengths` are the tokens of each row up to its last real one; None reads them from the mask.
    `price` is the cost of one more block, in tokens. A GPU has no blocks: rows keep their order.
    """
    if mask.is_cuda:
        return in_rows(mask, lengths, reach)
    size, device = (mask.shape[0], mask.shape[1]), mask.device
    if mask.is_meta:  # full rows: memory is planned without their values
        lengths = [size[1]] * size[0]
    elif lengths is None:
        ends = torch.arange(1, size[1] + 1, device=device)
        lengths = (mask * ends).amax(dim=1).clamp(min=1).tolist()
    groups = cut(lengths, size[0] * size[1], price)
    widths = [lengths[group[-1]] for group in groups]
    ordered_rows = [row for group in groups for row in group]
    repeats = [width for group, width in zip(groups, widths, strict=True) for _ in group]
    ends_before = [0, *accumulate(repeats[:-1])]
    by_row = dict(zip(ordered_rows, zip(ends_before, repeats, strict=True), strict=True))
    begin, tokens = zip(*(by_row[row] for row in range(size[0])), strict=True)
    order, starts, wide = on_device([ordered_rows, begin, tokens], device)
    total = sum(repeats)
    rows = order.repeat_interleave(wide[order], output_size=total)
    columns = torch.arange(total, device=device) - starts[rows]
    in_order = ordered_rows == list(range(size[0]))
    ordered = torch.split(mask if in_order else mask[order], [len(group) for group in groups])
    blocks = [Block(real[:, :width]) for real, width in zip(ordered, widths, strict=True)]
    every = rows, columns, starts, wide.int(), mask
    return Packing(blocks, *every, reach, None if in_order else order, size, tokens)


def in_rows(mask: Tensor, lengths: Sequence[int] | None, reach: Reach) -> Packing:
    """Return the packing of a batch whose rows keep their order, made on the batch's device.

    Of the `lengths` only the sum counts, so passes over batches with one sum are the same work.
    """
    place = torch.arange(mask.shape[1], device=mask.device)
    widths = (mask * (place + 1)).amax(dim=1).clamp(min=1)
    tokens = widths.tolist() if lengths is None else lengths
    ends = widths.cumsum(dim=0)
    token = torch.arange(sum(tokens), device=mask.device)
    rows = torch.searchsorted(ends, token, right=True)
    starts = ends - widths
    every = rows, token - starts[rows], starts, widths.int(), mask
    return Packing((), *every, reach, None, (mask.shape[0], mask.shape[1]), tokens)


def requested(
    hidden: Tensor, inputs: BackboneInput, packing: Packing | None
) -> list[Tensor | None]:
    """Return the hidden states `[K, H]` for hidden, pooled and logits; None if not requested."""
    requests = (inputs.hidden_at, inputs.pooled_at, inputs.logits_at)
    if packing is None:
        return [None if at is None else hidden[at.rows, at.columns] for at in requests]
    parts = torch.split(hidden[0], [0 if at is None else len(at.rows) for at in requests])
    return [None if at is None else part for at, part in zip(requests, parts, strict=True)]


@dataclass(frozen=True)
class Members:
    """The packed tokens of each member.

    Args:
        tokens: their origin, one by member.
        places: their indices among the tokens, one by member.
        back: `[N]` order that undoes the concatenation of all members' tokens.

    >>> import torch
    >>> from ptrun.backbone.packing import BLOCK, EVERY, members_of, packing_of
    >>> tokens = packing_of(torch.ones(2, 3, dtype=torch.bool), [3, 3], EVERY, BLOCK)
    >>> members = members_of(tokens, rows=[1, 1], counts=[3, 3])
    >>> [part.tolist() for part in members.split(torch.arange(6)[None])]
    [[[0, 1, 2]], [[3, 4, 5]]]
    """

    tokens: Sequence[Packing]
    places: Sequence[Tensor]
    back: Tensor

    def split(self, x: Tensor) -> list[Tensor]:
        """Return the members' tokens `[1, n, ...]` of tokens `[1, N, ...]`."""
        return [x.index_select(1, places) for places in self.places]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Return all tokens `[1, N, ...]` in their order, from those of each member."""
        return torch.cat(list(parts), dim=1).index_select(1, self.back)


def members_of(tokens: Packing, rows: Sequence[int], counts: Sequence[int]) -> Members:
    """Return the tokens of members that have so many rows each, and so many of the tokens."""
    device = tokens.rows.device
    parts = [torch.full((n,), owner, device=device) for owner, n in enumerate(rows)]
    owners = torch.cat(parts)
    order = owners[tokens.rows].argsort(stable=True)
    places = torch.split(order, list(counts))
    return Members([tokens.only(indices) for indices in places], places, order.argsort())


# A few sizes for all passes: on a GPU a pass of a known size is replayed.

_LEAST_WIDTH = 16  # a prompt leaves room for the eight tokens of a row that fills it


@dataclass(frozen=True)
class Room:
    """The size of a batch: the tokens of a row with padding, and those of each row that fills it.

    >>> from ptrun.backbone.packing import rooms
    >>> (room,) = rooms([[20, 30, 27, 24]])
    >>> room.width, 20 + 30 + 27 + 24 + sum(room.filling)
    (32, 112)
    """

    width: int
    filling: Sequence[int]


def rounded(count: int) -> int:
    """Return a number from a few, at least `count`: a step is at most a quarter of it.

    From 1024 on a step is an eighth, where the time of a pass depends on its tokens.
    """
    return -(-count // _step(count)) * _step(count)


def _step(count: int) -> int:
    return 1 << max(0, count.bit_length() - (3 if count < 1024 else 4))


def rooms(lengths: Sequence[Sequence[int]], *, apart: bool = False) -> list[Room] | None:
    """Return the room of each member, whose rows have `lengths`; None if their sums are far apart.

    The tokens of all together are `rounded`: the last member's room is filled. If members are
    `apart`, each has as many tokens as the largest.
    """
    longest, sums = max(map(max, lengths)), [sum(member) for member in lengths]
    width = max(_LEAST_WIDTH, 1 << (longest - 1).bit_length())
    widest = width // 2  # no position is new to the model
    total = max(sums) if apart else sum(sums)
    if apart and total > 2 * min(sums):
        return None
    base = rounded(total)
    count = -(-(_step(base) + (base // 2 if apart else 0)) // (widest - 1))
    size = base + count
    missing = [size - n for n in sums] if apart else [*[0] * (len(sums) - 1), size - total]
    shares = (  # of the missing tokens; they differ by at most 1
        [tokens // count + (place < tokens % count) for place in range(count if tokens else 0)]
        for tokens in missing
    )
    return [Room(width, share) for share in shares]


# Cut the rows of a step into micro-batches with little padding.
#
# Rows are sorted by length and cut where lengths change. Dynamic programming over distinct lengths
# finds the cuts with the fewest padded tokens, plus a fixed cost in tokens for each micro-batch.

OVERHEAD = 48
"""Fixed cost of a micro-batch in tokens on a CPU, measured with BERT-base."""

_BASE_WEIGHTS = 12 * 12 * 768**2

_READING = 256
"""Tokens a GPU computes in the time in which it reads the weights: about 450 FLOPs a weight."""

_LAUNCHING = 4_200_000_000
"""Tokens x hidden size squared in the time of a layer's launches: 25 of 10 us at 400 TFLOP/s."""


def overhead(layers: int, hidden_size: int, device: str = "cpu") -> int:
    """Return the fixed cost of a micro-batch in a model's tokens; small models have more.

    On a GPU each pass reads all weights and launches all kernels, so that it costs far more.
    """
    if device == "cpu":
        return round(OVERHEAD * _BASE_WEIGHTS / (12 * layers * hidden_size**2))
    return _READING + round(_LAUNCHING / hidden_size**2)


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
