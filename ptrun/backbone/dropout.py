"""Dropout as a pure function of (row key, site, cell), without a random number generator.

The mask of a row does not depend on the other rows of its batch, on padding, or on earlier steps.
So micro-batches, populations, resumed runs and engines all get the same dropout.
"""

import hashlib
import logging
import os
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

_LOG = logging.getLogger(__name__)


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
    numbers = *_numbers(p, x.dtype, x.device), origin
    if not _active and x.requires_grad:
        return cast(Tensor, _dropped(flat, lines.flatten(), *numbers)).view(x.shape)
    return call(_drop, flat, lines.flatten(), *numbers).view(x.shape)


_CACHED = 2**18  # cells whose hashes fit into a core's cache
_FEW = 2**20  # cells for which parts do not pay


class _Dropped(torch.autograd.Function):
    """`_drop` in parts that fit into a cache; it keeps a mask of bytes for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, lines: Tensor, limit: Tensor, scale: Tensor, origin: int
    ) -> Tensor:
        if not (parts := _parts(x)):
            kept = _kept(lines, x.shape[1], limit, origin)
        else:
            kept = torch.empty_like(x, dtype=torch.bool)
            for part in parts:
                kept[part] = _kept(lines[part], x.shape[1], limit, origin)
        ctx.save_for_backward(kept, scale)
        return _scaled(x, kept, scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _scaled(gradients[0], *ctx.saved_tensors), None, None, None, None


def _scaled(x: Tensor, kept: Tensor, scale: Tensor) -> Tensor:
    if not (parts := _parts(x)):
        return x * kept.to(x.dtype).mul_(scale)
    out = torch.empty_like(x)
    for part in parts:
        torch.mul(x[part], kept[part].to(x.dtype).mul_(scale), out=out[part])
    return out


def _parts(x: Tensor) -> list[slice]:
    """Return parts of the lines of `x` that fit into a cache; none if all are done at once."""
    if x.is_cuda or x.numel() <= _FEW or (x.is_meta and _planned_for_gpu):
        return []
    size = max(1, _CACHED // x.shape[1])
    # on the meta device memory is counted, and each part needs what the first one does
    return [slice(start, start + size) for start in range(0, 1 if x.is_meta else len(x), size)]


_planned_for_gpu = False


@contextmanager
def planned_for(device: str) -> Iterator[None]:
    """Count the memory of dropout on the meta device as a `cpu` or `cuda` needs it."""
    global _planned_for_gpu
    before, _planned_for_gpu = _planned_for_gpu, device == "cuda"
    try:
        yield
    finally:
        _planned_for_gpu = before


_dropped: Any = _Dropped.apply


def _drop(x: Tensor, lines: Tensor, limit: Tensor, scale: Tensor, origin: int) -> Tensor:
    """Return `x [n, size]` with cells dropped; compiled, these passes over memory are one."""
    return x * _kept(lines, x.shape[1], limit, origin).to(x.dtype).mul(scale)


@cache
def _numbers(p: float, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the limit and the scale as tensors `[]` on a device.

    Compiled code reads a tensor from memory. On an H100 (torch 2.11, Triton 3.6) a kernel that got
    them as numbers computed something else.
    """
    least = torch.tensor(limit(p), dtype=torch.int32, device=device)
    return least, torch.tensor(scale(p, dtype), dtype=dtype, device=device)


@cache
def scale(p: float, dtype: torch.dtype) -> float:
    """Return `1 / (1 - p)` in a precision; compiled code would not round it."""
    return torch.tensor(1.0 / (1.0 - p), dtype=dtype).item()


def limit(p: float) -> int:
    """Return the int32 below which a cell's hash drops it."""
    return int(p * 2**32) - 2**31


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


def _kept(lines: Tensor, size: int, limit: Tensor, origin: int) -> Tensor:
    """Return the mask `[n, size]` of lines `[n]`."""
    cells = lines.unsqueeze(-1) ^ _last(size, origin, lines.device)
    cells *= MIX1
    cells ^= cells >> 15
    cells *= MIX2
    return cells >= limit


def _last(size: int, origin: int, device: torch.device) -> Tensor:
    """Return the hashes `[size]` of the last axis."""
    last = torch.arange(size, dtype=torch.int32, device=device) - origin
    return _mix(last * GOLDEN)


# Element-wise functions that torch can compile into one pass over memory.
#
# Only functions whose compiled result is equal bit for bit go through here, so a run may switch in
# the middle. The first call of each type and device is compared. Compiled code is kept on disk. It
# takes about 20 s the first time on a machine, and 2 s after that.

_compiled: dict[Callable[..., Tensor], Any] = {}
_proved: set[tuple[Callable[..., Tensor], torch.dtype, torch.device]] = set()
_active = False


def call(function: Callable[..., Tensor], x: Tensor, *others: Any) -> Tensor:
    """Return the function's value, compiled if `activate` was called.

    A compiler that fails, or whose code computes other bits, is not asked again.
    """
    if not _active:
        return function(x, *others)
    if function not in _compiled:
        _compiled[function] = torch.compile(function, dynamic=True)
    try:
        wrong = _differs(function, x, *others)
        value: Tensor = function(x, *others) if wrong else _compiled[function](x, *others)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # torch, Triton and the C compiler share no error class
        _refuse("compiling it fails: %s", " ".join(str(error).split())[:200])
        return function(x, *others)
    if wrong:
        _refuse("its compiled code computes other numbers on %s", x.device)
    return value


def _differs(function: Callable[..., Tensor], x: Tensor, *others: Any) -> bool:
    """Return whether compiled code gives other bits; asked once a type and device."""
    case = function, x.dtype, x.device
    if case in _proved:
        return False
    found, wanted = (_bits(own, x, others) for own in (_compiled[function], function))
    _proved.add(case)
    return not all(map(torch.equal, found, wanted))


@torch.enable_grad()
def _bits(function: Callable[..., Tensor], x: Tensor, others: Sequence[Any]) -> list[Tensor]:
    given = x.detach().requires_grad_(True)
    value = function(given, *others)
    return [value.detach(), *torch.autograd.grad(value.float().square().sum(), given)]


def _refuse(reason: str, *values: Any) -> None:
    activate(False)
    _LOG.warning(f"dropout is not compiled, since {reason}", *values)


def activate(on: bool) -> None:
    """Switch compilation on or off for this process."""
    global _active
    if on:
        home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        kept = Path(home).expanduser() / "ptrun" / "compiled"
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(kept))
    _active = on


def compiler(device: str) -> str | None:
    """Return what torch compiles with on a device; None if it is missing.

    Triton compiles a part in C that starts a kernel, so it needs a C compiler and Python's headers.
    """
    if device == "cuda":
        from torch.utils._triton import has_triton  # `import torch` does not import it

        header = Path(sysconfig.get_path("include")) / "Python.h"
        tools = any(map(shutil.which, (os.environ.get("CC", "gcc"), "cc", "clang")))
        return "triton" if has_triton() and tools and header.is_file() else None
    return shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
