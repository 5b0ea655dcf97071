"""What the kernels share: loads, masks, scores and dropout of one tile.

Letters in shapes: M queries and N keys of a tile, D the head size padded to a power of two. The
indices `t` of queries and `s` of keys are given as a column and a row, or as a row and a column for
a transposed tile. Scores are in base 2, where the exponential is one instruction.
"""

import triton
import triton.language as tl

from ptrun.backbone import dropout

_GOLDEN = tl.constexpr(dropout.GOLDEN)
_MIX1 = tl.constexpr(dropout.MIX1)
_MIX2 = tl.constexpr(dropout.MIX2)
_HEAD, _TOKEN = tl.constexpr(dropout.PRIMES[0]), tl.constexpr(dropout.PRIMES[1])
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def tile(x, places, step, size, HEAD: tl.constexpr, D: tl.constexpr):
    """Return the vectors `[n, D]` at `places [n]`, zero from `size` on; offsets are 64-bit."""
    d = tl.arange(0, D)[None, :]
    inside = places[:, None] < size
    if HEAD != D:
        inside = inside & (d < HEAD)
    return tl.load(x + places[:, None].to(tl.int64) * step + d, mask=inside, other=0.0)


@triton.jit
def put(x, values, places, step, size, HEAD: tl.constexpr, D: tl.constexpr):
    """Store the vectors `[n, D]` at `places [n]` below `size`, in the type of `x`."""
    d = tl.arange(0, D)[None, :]
    inside = places[:, None] < size
    if HEAD != D:
        inside = inside & (d < HEAD)
    at = x + places[:, None].to(tl.int64) * step + d
    tl.store(at, values.to(x.dtype.element_ty), mask=inside)


@triton.jit
def scored(
    products,
    t,
    s,
    T,
    S,
    scale,
    mask,
    mask_query,
    bias,
    bias_query,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BIASED: tl.constexpr,
):
    """Return the scores of a tile from its products; -inf where the query does not see the key.

    `MASKED` is 1 for a mask over keys and 2 for one over queries and keys. Under `CAUSAL` a query
    sees the keys before it that the mask allows, and itself.
    """
    scores = products * (scale * LOG2E)
    inside = s < S
    if BIASED:
        there = inside & (t < T)
        added = tl.load(bias + t.to(tl.int64) * bias_query + s, mask=there, other=0.0)
        scores += added.to(tl.float32) * LOG2E
    if MASKED == 1:
        inside = inside & (tl.load(mask + s, mask=inside, other=0) != 0)
    if MASKED == 2:
        there = inside & (t < T)
        inside = tl.load(mask + t.to(tl.int64) * mask_query + s, mask=there, other=0) != 0
    if CAUSAL:
        inside = (inside & (s < t)) | (s == t)
    return tl.where(inside, scores, float("-inf"))


@triton.jit
def mixed(x):
    """Return scrambled int32 values, as `_mix` of `ptrun.backbone.dropout`."""
    x = x ^ (x >> 16)
    x = x * _MIX1
    x = x ^ (x >> 13)
    return x * _MIX2


@triton.jit
def hashed(key, site, head):
    """Return the hash of row, site and head, from the row's 64-bit key: `_lines` of the same."""
    low = (key & 0x7FFFFFFF).to(tl.int32)
    high = ((key >> 31) & 0x7FFFFFFF).to(tl.int32)
    row = mixed(mixed(low * _GOLDEN + high) + site)
    return mixed(row + head.to(tl.int32) * _HEAD)


@triton.jit
def kept(line, t, s, limit):
    """Return which cells of a tile are kept: the bits of `drop` in `ptrun.backbone.dropout`.

    `line` is that of `hashed`; `s` counts from the first token behind the prefix.
    """
    cells = mixed(line + t * _TOKEN) ^ mixed(s * _GOLDEN)
    cells = cells * _MIX1
    cells = cells ^ (cells >> 15)
    return cells * _MIX2 >= limit
