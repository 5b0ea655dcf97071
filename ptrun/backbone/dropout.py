"""Dropout as a pure function of (row key, site, cell), without a random number generator.

The mask of a row does not depend on the other rows of its batch, on padding, or on earlier steps.
So micro-batches, populations, resumed runs and engines all get the same dropout.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

RULE = 2
"""Number of the rule that says which cells are dropped: results and saved states depend on it."""

GOLDEN, MIX1, MIX2 = -1640531527, -2048144789, -1028477387  # odd 32-bit constants (murmur3)
PRIMES = (73856093, 19349663, 83492791)


def _mix(x: Tensor) -> Tensor:
    """Scramble int32 values in place (the murmur3 finaliser on arithmetic shifts)."""
    x ^= x >> 16
    x *= MIX1
    x ^= x >> 13
    x *= MIX2
    return x


def row_keys(seed: int, step: int, slots: Sequence[int]) -> Tensor:
    """Return `[B]` int64 keys for the rows at `slots` of one member's batch at one step."""
    digest = hashlib.blake2b(f"{seed}:{step}".encode(), digest_size=8).digest()
    base = int.from_bytes(digest, "little") >> 2
    return torch.tensor([base + slot for slot in slots], dtype=torch.int64)


def drop(
    x: Tensor, keys: Tensor | None, site: int, p: float, origin: int = 0, start: int = 0
) -> Tensor:
    """Return `x [B, ...]`, of up to four axes, with cells dropped with probability `p`.

    The rest is scaled by `1 / (1 - p)`. `origin` is subtracted from the index along the last axis,
    so cells keep their mask behind a prefix of any length. `start`, the first head of a rank, is
    added along the second axis. Without keys, in evaluation, return `x` unchanged.
    """
    if keys is None or p == 0.0:
        return x
    return drop_lines(x, _lines(keys, site, x.shape[1:-1], start), p, origin)


def drop_tokens(
    x: Tensor, keys: Tensor, columns: Tensor, site: int, p: float, origin: int = 0
) -> Tensor:
    """Return tokens `[N, H]` of the `columns [N]` of rows with `keys [N]`, after dropout.

    It is `drop` of rows `[B, T, H]`, at these tokens alone.
    """
    lines = _mix(_of_rows(keys, site) + columns.to(torch.int32) * PRIMES[0])
    return drop_lines(x, lines, p, origin)


def token_lines(
    keys: Tensor, rows: Tensor, columns: Tensor, site: int, heads: int, start: int = 0
) -> Tensor:
    """Return the hashes `[N, heads]` of the attention weights of tokens, for `drop_lines`.

    They are those that `drop` computes for rows with `keys [B]` and weights `[B, heads, T, S]`.
    """
    by_row = _lines(keys, site, [heads], start)
    return _mix(by_row[rows] + (columns.to(torch.int32) * PRIMES[1])[:, None])


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
    return round(p * 2**16) - 2**15


def _lines(keys: Tensor, site: int, shape: Sequence[int], start: int) -> Tensor:
    """Return int32 hashes `[B, *shape]` of everything but the last axis."""
    lines = _of_rows(keys, site)
    for axis, size in enumerate(shape):
        index = torch.arange(size, dtype=torch.int32, device=keys.device) + start * (axis == 0)
        index *= PRIMES[axis]
        lines = _mix(lines.unsqueeze(-1) + index)
    return lines


def _of_rows(keys: Tensor, site: int) -> Tensor:
    low = (keys & 0x7FFFFFFF).to(torch.int32)
    high = (keys >> 31 & 0x7FFFFFFF).to(torch.int32)
    return _mix(_mix(low * GOLDEN + high) + site)


def _kept(lines: Tensor, size: int, p: float, origin: int) -> Tensor:
    """Return 1 where a cell of the lines `[n]` is kept, else 0, `[n, size]`, of 16 bits.

    A hash of 32 bits serves two neighbours, an even place by its lower half. Numbers are clamped
    to two neighbouring values, since torch compares slowly on a CPU.
    """
    odd = -origin % 2
    first, count = (-origin - odd) // 2, (odd + size + 1) // 2
    pairs = torch.arange(first, first + count, dtype=torch.int32, device=lines.device)
    cells = lines.unsqueeze(-1) ^ _mix(pairs * GOLDEN)
    cells *= MIX1
    cells ^= cells >> 15
    cells *= MIX2
    least = limit(p)
    return cells.view(torch.int16)[:, odd : odd + size].clamp_(least - 1, least).sub_(least - 1)
