"""Dropout as a pure function of (row key, site, cell), without a random number generator.

The mask of a row does not depend on the other rows of its batch, on padding, or on earlier steps.
So micro-batches, populations, resumed runs and engines all get the same dropout.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_GOLDEN, _MIX1, _MIX2 = -1640531527, -2048144789, -1028477387  # odd 32-bit constants (murmur3)
_PRIMES = (73856093, 19349663, 83492791)


def _mix(x: Tensor) -> Tensor:
    """Scramble int32 values in place (the murmur3 finaliser on arithmetic shifts)."""
    x ^= x >> 16
    x *= _MIX1
    x ^= x >> 13
    x *= _MIX2
    return x


def row_keys(seed: int, step: int, slots: Sequence[int]) -> Tensor:
    """Return `[B]` int64 keys for the rows at `slots` of one member's batch at one step."""
    digest = hashlib.blake2b(f"{seed}:{step}".encode(), digest_size=8).digest()
    base = int.from_bytes(digest, "little") >> 2
    return torch.tensor([base + slot for slot in slots], dtype=torch.int64)


def keep(
    keys: Tensor, site: int, shape: Sequence[int], p: float, origin: int = 0, start: int = 0
) -> Tensor:
    """Return a bool mask `[B, *shape]`, False with probability `p`, for up to three axes.

    `origin` is subtracted from the index along the last axis, so cells keep their mask behind a
    prefix of any length. `start`, the first head of a rank, is added along the first axis.
    """
    cells = _of_rows(keys, site)
    for axis, size in enumerate(shape[:-1]):
        index = torch.arange(size, dtype=torch.int32, device=keys.device) + start * (axis == 0)
        index *= _PRIMES[axis]
        cells = _mix(cells.unsqueeze(-1) + index)
    return _kept(cells, shape[-1], p, origin)


def keep_tokens(
    keys: Tensor, columns: Tensor, site: int, size: int, p: float, origin: int = 0
) -> Tensor:
    """Return the mask `[N, size]` of tokens in the `columns [N]` of rows with `keys [N]`.

    It is `keep` with the shape `[T, size]`, at these tokens alone.
    """
    index = columns.to(torch.int32) * _PRIMES[0]
    return _kept(_mix(_of_rows(keys, site) + index), size, p, origin)


def _of_rows(keys: Tensor, site: int) -> Tensor:
    """Return an int32 for each row at a site."""
    low = (keys & 0x7FFFFFFF).to(torch.int32)
    high = (keys >> 31 & 0x7FFFFFFF).to(torch.int32)
    return _mix(_mix(low * _GOLDEN + high) + site)


def _kept(cells: Tensor, size: int, p: float, origin: int) -> Tensor:
    """Return the mask `[..., size]` of the cells along the last axis."""
    last = torch.arange(-origin, size - origin, dtype=torch.int32, device=cells.device)
    cells = cells.unsqueeze(-1) ^ _mix(last * _GOLDEN)
    cells *= _MIX1
    cells ^= cells >> 15
    cells *= _MIX2
    return cells >= int(p * 2**32) - 2**31


def drop(
    x: Tensor, keys: Tensor | None, site: int, p: float, origin: int = 0, start: int = 0
) -> Tensor:
    """Return `x [B, ...]` with cells dropped and the rest scaled by `1 / (1 - p)`.

    Without keys, in evaluation, return `x` unchanged.
    """
    if keys is None or p == 0.0:
        return x
    return _scaled(x, keep(keys, site, x.shape[1:], p, origin, start), p)


def drop_tokens(
    x: Tensor, keys: Tensor, columns: Tensor, site: int, p: float, origin: int = 0
) -> Tensor:
    """Return tokens `[N, H]` after dropout; see `keep_tokens`."""
    return _scaled(x, keep_tokens(keys, columns, site, x.shape[1], p, origin), p)


def _scaled(x: Tensor, kept: Tensor, p: float) -> Tensor:
    return x * kept.to(x.dtype).mul_(1.0 / (1.0 - p))
