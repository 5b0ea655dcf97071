"""Dropout as a pure function of (row key, site, cell), in place of a stream of random numbers.

A row's mask does not depend on which rows share its batch, how far they are padded, or what ran
before. So micro-batches, populations, resumed runs and engines all see the same dropout.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ptrun.backbone.division import Division

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

    `origin` is subtracted from the index along the last axis, so that cells keep their mask when
    a prefix of another length stands before them. `start` is added along the first axis: where the
    heads of a rank begin.
    """
    low = (keys & 0x7FFFFFFF).to(torch.int32)
    high = (keys >> 31 & 0x7FFFFFFF).to(torch.int32)
    cells = _mix(_mix(low * _GOLDEN + high) + site)
    for axis, size in enumerate(shape[:-1]):
        index = torch.arange(size, dtype=torch.int32, device=keys.device) + start * (axis == 0)
        index *= _PRIMES[axis]
        cells = _mix(cells.unsqueeze(-1) + index)
    last = torch.arange(-origin, shape[-1] - origin, dtype=torch.int32, device=keys.device)
    cells = cells.unsqueeze(-1) ^ _mix(last * _GOLDEN)
    cells *= _MIX1
    cells ^= cells >> 15
    cells *= _MIX2
    return cells >= int(p * 2**32) - 2**31


def drop(
    x: Tensor, keys: Tensor | None, site: int, p: float, origin: int = 0, start: int = 0
) -> Tensor:
    """Return `x [B, ...]` with cells dropped and the rest scaled by `1 / (1 - p)`.

    `keys` None means evaluation: `x` itself.
    """
    if keys is None or p == 0.0:
        return x
    return x * keep(keys, site, x.shape[1:], p, origin, start).to(x.dtype).mul_(1.0 / (1.0 - p))


class KeyedDropout(nn.Module):
    """Takes the place of an `nn.Dropout` inside a backbone; reads the keys of the current pass.

    `cut` says that a rank of a tensor-parallel group has its own part of the last axis.
    """

    cut: bool = False

    def __init__(self, p: float, site: int, slot: "Slot"):
        super().__init__()
        self.p, self.site, self.slot = p, site, slot

    def forward(self, x: Tensor, origin: int = 0) -> Tensor:
        """Return `x [B, ...]` with this site's cells dropped."""
        if self.cut and self.slot.division:
            origin -= self.slot.division.first(x.shape[-1])
        return drop(x, self.slot.keys, self.site, self.p, origin)


class Slot:
    """Where a backbone keeps the dropout keys of the pass it is in, and its rank's division."""

    keys: Tensor | None = None
    division: Division | None = None


def install(model: nn.Module, slot: Slot) -> None:
    """Replace every `nn.Dropout` of a model, numbering the sites in module order."""
    sites = [
        (parent, name)
        for parent in model.modules()
        for name, child in parent.named_children()
        if isinstance(child, nn.Dropout)
    ]
    for site, (parent, name) in enumerate(sites):
        made = KeyedDropout(getattr(parent, name).p, site, slot)
        made.cut = hasattr(parent, "wo")  # T5's feed-forward layer drops what it has made wide
        setattr(parent, name, made)
