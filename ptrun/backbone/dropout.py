"""Dropout as a pure function of (row key, site, cell), without a random number generator.

The mask of a row does not depend on the other rows of its batch, on padding, or on earlier steps.
So micro-batches, populations, resumed runs and engines all get the same dropout.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from ptrun.backbone import launch
from ptrun.backbone.hashes import GOLDEN, MIX1, MIX2, PRIMES, mix

RULE = 2
"""Number of the rule that says which cells are dropped: results and saved states depend on it."""


def row_keys(seed: int, step: int, slots: Sequence[int]) -> Tensor:
    """Return `[B]` int64 keys for the rows at `slots` of one member's batch at one step."""
    digest = hashlib.blake2b(f"{seed}:{step}".encode(), digest_size=8).digest()
    base = int.from_bytes(digest, "little") >> 2
    return torch.tensor([base + slot for slot in slots], dtype=torch.int64)


@dataclass(frozen=True)
class Keyed:
    """The dropout of rows `[B, ...]`, of up to four axes, or of packed tokens `[..., S]` of rows.

    Args:
        keys: `[B]` int64 keys of the rows.
        site: the site.
        p: the probability.
        origin: subtracted from the index along the last axis.
        start: added to the index along the second axis.
        rows, columns: `[N]` cells of the batch that packed tokens come from.

    >>> import torch
    >>> from ptrun.backbone.dropout import Keyed, row_keys
    >>> Keyed(row_keys(seed=1, step=2, slots=[0]), site=0, p=0.5)(torch.ones(1, 6)).tolist()
    [[0.0, 0.0, 0.0, 0.0, 2.0, 2.0]]
    """

    keys: Tensor
    site: int
    p: float
    origin: int = 0
    start: int = 0
    rows: Tensor | None = None
    columns: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return `x` after dropout; on CUDA one program computes it, where Triton works."""
        if launch.chosen(x) and (
            not x.is_cuda or launch.agrees("dropout", differs, x.device, x.dtype)
        ):
            return cast(Tensor, _keyed(x, self))
        return drop_lines(x, self.lines(x.shape[1:-1]), self.p, self.origin)

    def behind(self, x: Tensor, origin: int) -> Tensor:
        """Return `x` after dropout, where `origin` cells come before those of the last axis."""
        return replace(self, origin=origin)(x)

    def lines(self, shape: Sequence[int]) -> Tensor:
        """Return int32 hashes `[B, *shape]` of everything but the last axis, or `[N]` of tokens."""
        low = (self.keys & 0x7FFFFFFF).to(torch.int32)
        high = (self.keys >> 31 & 0x7FFFFFFF).to(torch.int32)
        lines = mix(mix(low * GOLDEN + high) + self.site)
        if self.rows is not None and self.columns is not None:
            return mix(lines[self.rows] + self.columns.to(torch.int32) * PRIMES[0])
        for axis, size in enumerate(shape):
            index = torch.arange(size, dtype=torch.int32, device=self.keys.device)
            index = (index + self.start * (axis == 0)).mul_(PRIMES[axis])
            lines = mix(lines.unsqueeze(-1) + index)
        return lines

    def token_lines(self, rows: Tensor, columns: Tensor, heads: int) -> Tensor:
        """Return the hashes `[N, heads]` of the attention weights of tokens, for `drop_lines`.

        They are those of weights `[B, heads, T, S]`.
        """
        lines = self.lines([heads])[rows]
        return mix(lines + (columns.to(torch.int32) * PRIMES[1])[:, None])

    def arguments(self, x: Tensor) -> dict[str, Any]:
        """Return what programs need to know of the dropout of `x`."""
        axes = 1 if self.rows is not None else x.dim() - 2
        return {
            **{"KEYS": self.keys, "ROWS": self.rows, "COLUMNS": self.columns},
            **{"site": self.site, "limit": limit(self.p), "boost": scale(self.p, x.dtype)},
            **{"origin": self.origin, "begin": self.start, "lines": x.numel() // x.shape[-1]},
            **{"AXES": axes, "PACKED": self.rows is not None, "size": x.shape[-1]},
            "first": x.shape[1] if axes else 1,
            "second": x.shape[2] if axes > 1 else 1,
        }


def drop(
    x: Tensor, keys: Tensor | None, site: int, p: float, origin: int = 0, start: int = 0
) -> Tensor:
    """Return `x [B, ...]`, of up to four axes, with cells dropped with probability `p`.

    The rest is scaled by `1 / (1 - p)`. `origin` is subtracted from the index along the last axis,
    so cells keep their mask behind a prefix of any length. `start`, the first head of a rank, is
    added along the second axis. Without keys, in evaluation, return `x` unchanged.
    """
    return x if keys is None or p == 0.0 else Keyed(keys, site, p, origin, start)(x)


def drop_lines(x: Tensor, lines: Tensor, p: float, origin: int = 0) -> Tensor:
    """Return `x [..., S]` after dropout, from the hashes `[...]` of all but its last axis."""
    flat = x.reshape(-1, x.shape[-1])
    return cast(Tensor, _dropped(flat, lines.flatten(), p, origin)).view(x.shape)


_CACHED = 2**18  # cells whose hashes fit into a core's cache
_FEW = 2**20  # cells for which parts do not pay


class _Dropped(torch.autograd.Function):
    """Dropout in parts that fit into a cache; it keeps a mask of bytes for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lines: Tensor, p: float, origin: int) -> Tensor:
        keep = torch.empty_like(x, dtype=torch.int8)
        for part in _parts(x):
            keep[part] = _kept(lines[part], x.shape[1], p, origin)
        ctx.save_for_backward(keep)
        ctx.scale = scale(p, x.dtype)
        return _scaled(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (keep,) = ctx.saved_tensors
        return _scaled(gradients[0], keep, ctx.scale), None, None, None


def _scaled(x: Tensor, keep: Tensor, scale: float) -> Tensor:
    out = torch.empty_like(x)
    for part in _parts(x):
        torch.mul(x[part], keep[part].to(x.dtype).mul_(scale), out=out[part])
    return out


def _parts(x: Tensor) -> list[slice]:
    """Return parts of the lines of `x` that fit into a cache; one if all are done at once."""
    if x.is_cuda or x.numel() <= _FEW:
        return [slice(None)]
    size = max(1, _CACHED // x.shape[1])
    return [slice(start, start + size) for start in range(0, len(x), size)]


_dropped: Any = _Dropped.apply


@cache
def scale(p: float, dtype: torch.dtype) -> float:
    """Return `1 / (1 - p)`, rounded to a precision."""
    return torch.tensor(1.0 / (1.0 - p), dtype=dtype).item()


def limit(p: float) -> int:
    """Return the number of 16 bits, with a sign, below which a cell is dropped."""
    return min(max(1, round(p * 2**16)), 2**16 - 1) - 2**15


def _kept(lines: Tensor, size: int, p: float, origin: int) -> Tensor:
    """Return 1 where a cell of the lines `[n]` is kept, else 0, `[n, size]`, of 16 bits.

    A hash of 32 bits serves two neighbours, an even place by its lower half. Numbers are clamped
    to two neighbouring values, since torch compares slowly on a CPU.
    """
    odd = -origin % 2
    first, count = (-origin - odd) // 2, (odd + size + 1) // 2
    pairs = torch.arange(first, first + count, dtype=torch.int32, device=lines.device)
    cells = lines.unsqueeze(-1) ^ mix(pairs * GOLDEN)
    cells *= MIX1
    cells ^= cells >> 15
    cells *= MIX2
    least = limit(p)
    return cells.view(torch.int16)[:, odd : odd + size].clamp_(least - 1, least).sub_(least - 1)


class _Keyed(torch.autograd.Function):
    """Dropout that keeps nothing for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dropout: Keyed) -> Tensor:
        ctx.dropout = dropout
        return _started(x, dropout)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _started(gradients[0], ctx.dropout), None


_keyed: Any = _Keyed.apply
_CELLS = 2048  # of a program: 16 in each thread


def _started(x: Tensor, dropout: Keyed) -> Tensor:
    x = x.contiguous()
    out, size = torch.empty_like(x), x.shape[-1]
    cells = min(256, 1 << (size - 1).bit_length())
    parts = {"M": _CELLS // cells, "N": cells}
    arguments = dropout.arguments(x) | parts | {"X": x, "OUT": out}
    programs = -(-arguments["lines"] // parts["M"]) * -(-size // cells)
    launch.start("dropped", programs, arguments, x.device)
    return out


def differs(device: torch.device, dtype: torch.dtype) -> float:
    """Return 2 if the program and torch drop other cells, of a batch or of packed tokens, or 0."""
    keys, cells = row_keys(1, 2, range(3)).to(device), torch.arange(42, device=device)
    kinds = Keyed(keys, 3, 0.3, 5, 7), Keyed(keys, 3, 0.3, rows=cells % 3, columns=cells * 9)
    x = 2 ** (cells.repeat(37) % 9).to(dtype).view(3, 2, 7, 37)  # products are exact
    by_torch = (drop_lines(x, kind.lines(x.shape[1:-1]), kind.p, kind.origin) for kind in kinds)
    pairs = zip(kinds, by_torch, strict=True)
    return 2.0 * any(not torch.equal(_started(x, kind), y) for kind, y in pairs)
