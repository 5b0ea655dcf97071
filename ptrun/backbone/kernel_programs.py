"""The Triton programs: attention, dropout, and the norm of a sum, forward and backward."""

import triton
import triton.language as tl

from ptrun.backbone import hashes

# The forward kernel: one program reads all keys for M queries of one row and head.
#
# It keeps the maximum and the sum of the softmax as it goes, so scores exist one tile at a time.


@triton.jit
def _read(
    out, top, total, q, t, k, v, k_token, v_token, end, T, S, scale,
    mask, mask_query, bias, bias_query, line, first, limit,
    HEAD: tl.constexpr, D: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return output `[M, D]`, maximum and sum `[M]` after the keys below `end`; S is their number.

    `first` is the place of key 0: minus the length of the prefix for a prefix, 0 for a text.
    """
    for start in range(0, end, N):
        s = start + tl.arange(0, N)
        products = tl.dot(q, tl.trans(tile(k, s, k_token, S, HEAD, D)), input_precision=PRECISION)
        scores = scored(
            products, t[:, None], s[None, :], T, S, scale, mask, mask_query, bias, bias_query,
            MASKED, CAUSAL, BIASED,
        )  # fmt: skip
        higher = tl.maximum(top, tl.max(scores, 1))
        known = tl.where(higher == float("-inf"), 0.0, higher)  # no key is seen so far
        weights = tl.exp2(scores - known[:, None])
        shrink = tl.exp2(top - known)
        total = total * shrink + tl.sum(weights, 1)
        if DROPS:
            weights = tl.where(
                kept(mixed(line + t[:, None] * _TOKEN), s[None, :] + first, limit), weights, 0.0
            )
        values = tile(v, s, v_token, S, HEAD, D)
        read = tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        out = out * shrink[:, None] + read
        top = higher
    return out, top, total


SIZES = ["T", "S", "P", "tokens", "blocks", "limit", "site", "mask_row", "mask_query", "pmask_row"]
SIZES += ["bias_row", "bias_head", "bias_query"]
"""Integers that change from step to step; a kernel is not compiled anew for their divisors."""


@triton.jit(do_not_specialize=SIZES)
def forward(
    Q, K, V, PK, PV, MASK, PMASK, BIAS, STARTS, WIDTHS, KEYS, OUT, SUMS,
    T, S, P, tokens, blocks, scale, boost, limit, site, top,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    pk_row, pk_head, pk_token, pv_row, pv_head, pv_token,
    mask_row, mask_query, pmask_row, bias_row, bias_head, bias_query,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, PACKED: tl.constexpr, MASKED: tl.constexpr,
    PMASKED: tl.constexpr, CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
    PREFIXED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the output of M queries, and the logarithm (base 2) of the sum of their weights."""
    place = tl.program_id(0)
    head = (place // blocks % HEADS).to(tl.int64)
    row = (place // blocks // HEADS).to(tl.int64)
    group = head // GROUPS
    t = place % blocks * M + tl.arange(0, M)
    base = row * T  # index of the row's first token
    q, k, v = Q + row * q_row, K + row * k_row, V + row * v_row
    mask = MASK
    if PACKED:
        base = tl.load(STARTS + row)
        T = tl.load(WIDTHS + row)
        S = T
        q, k, v = Q + base * q_token, K + base * k_token, V + base * v_token
        mask = MASK + base
    elif MASKED:
        mask = MASK + row * mask_row
    bias = BIAS
    if BIASED:
        bias = BIAS + row * bias_row + head * bias_head
    line = 0
    if DROPS:
        line = mixed(hashed(tl.load(KEYS + row), site) + (head + top).to(tl.int32) * _HEAD)
    queries = tile(q + head * q_head, t, q_token, T, HEAD, D)
    out = tl.zeros([M, D], tl.float32)
    top = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    if PREFIXED:
        pmask = PMASK
        if PMASKED:
            pmask = PMASK + row * pmask_row
        out, top, total = _read(
            out, top, total, queries, t,
            PK + row * pk_row + group * pk_head, PV + row * pv_row + group * pv_head,
            pk_token, pv_token, P, T, P, scale, pmask, 0, BIAS, 0, line, -P, limit,
            HEAD, D, N, PMASKED, False, False, DROPS, PRECISION,
        )  # fmt: skip
    end = S
    if CAUSAL:
        end = tl.minimum(S, place % blocks * M + M)
    out, top, total = _read(
        out, top, total, queries, t, k + group * k_head, v + group * v_head, k_token, v_token,
        end, T, S, scale, mask, mask_query, bias, bias_query, line, 0, limit,
        HEAD, D, N, MASKED, CAUSAL, BIASED, DROPS, PRECISION,
    )  # fmt: skip
    if DROPS:
        out = out * boost
    blind = total == 0.0  # no key is seen: the output and all gradients are zero
    total = tl.where(blind, 1.0, total)
    out = out / total[:, None]
    sums = tl.where(blind, float("inf"), top + tl.log2(total))
    put(OUT + base * HEADS * HEAD + head * HEAD, out, t, HEADS * HEAD, T, HEAD, D)
    tl.store(SUMS + head * tokens + base + t, sums, mask=t < T)


# What the kernels share: loads, masks, scores and dropout of one tile.
#
# Letters in shapes: M queries and N keys of a tile, D the head size padded to a power of two. The
# indices `t` of queries and `s` of keys are given as a column and a row, or as a row and a column
# for a transposed tile. Scores are in base 2, where the exponential is one instruction.

_GOLDEN = tl.constexpr(hashes.GOLDEN)
_MIX1 = tl.constexpr(hashes.MIX1)
_MIX2 = tl.constexpr(hashes.MIX2)
_HEAD, _TOKEN = tl.constexpr(hashes.PRIMES[0]), tl.constexpr(hashes.PRIMES[1])
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
    products, t, s, T, S, scale, mask, mask_query, bias, bias_query,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
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
    """Return scrambled int32 values, as `mix` of `ptrun.backbone.hashes`."""
    x = x ^ (x >> 16)
    x = x * _MIX1
    x = x ^ (x >> 13)
    return x * _MIX2


@triton.jit
def hashed(key, site):
    """Return the hash of a row at a site, from the row's 64-bit key."""
    low = (key & 0x7FFFFFFF).to(tl.int32)
    high = ((key >> 31) & 0x7FFFFFFF).to(tl.int32)
    return mixed(mixed(low * _GOLDEN + high) + site)


@triton.jit
def kept(lines, s, limit):
    """Return which cells `s` of lines are kept: the bits of `drop` in `ptrun.backbone.dropout`.

    `lines` are hashes of all axes but the last; of tokens, `s` counts from the first token behind
    the prefix.
    """
    cells = lines ^ mixed((s >> 1) * _GOLDEN)
    cells = cells * _MIX1
    cells = cells ^ (cells >> 15)
    cells = cells * _MIX2
    return ((cells << (16 - 16 * (s & 1))) >> 16) >= limit  # one half of the bits, with its sign


# The backward kernels; they compute each tile of scores again from the saved sums.
#
# `deltas` comes first: the gradient of a softmax needs one number per query. `queries` gives the
# gradient of the queries, `keys` those of the keys and values of a prefix or of a text.


@triton.jit(do_not_specialize=["tokens"])
def deltas(
    OUT, GRAD, DELTAS, tokens, HEADS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    M: tl.constexpr,
):  # fmt: skip
    """Write the product of output and gradient of M tokens of one head."""
    head = (tl.program_id(0) % HEADS).to(tl.int64)
    t = (tl.program_id(0) // HEADS).to(tl.int64) * M + tl.arange(0, M)
    out = tile(OUT + head * HEAD, t, HEADS * HEAD, tokens, HEAD, D).to(tl.float32)
    grad = tile(GRAD + head * HEAD, t, HEADS * HEAD, tokens, HEAD, D).to(tl.float32)
    at = DELTAS + head * tokens + t
    tl.store(at, tl.sum(out * grad, 1), mask=t < tokens)


@triton.jit
def _kept_of(
    GRAD, SUMS, DELTAS, head, base, t, tokens, T,
    HEADS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Return the gradient `[M, D]` of the output of queries `t`, their sums and deltas `[M]`."""
    grad = tile(GRAD + base * HEADS * HEAD + head * HEAD, t, HEADS * HEAD, T, HEAD, D)
    at = head * tokens + base + t
    sums = tl.load(SUMS + at, mask=t < T, other=float("inf"))
    delta = tl.load(DELTAS + at, mask=t < T, other=0.0)
    return grad, sums, delta


@triton.jit
def _slopes(
    products, pulls, sums, delta, t, s, T, S, scale, mask, mask_query, bias, bias_query,
    line, first, limit, boost,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Return the weights of a tile after dropout without `boost`, and the gradient of its scores.

    `pulls` are the products of the output's gradient and the values.
    """
    scores = scored(
        products, t, s, T, S, scale, mask, mask_query, bias, bias_query, MASKED, CAUSAL, BIASED
    )
    weights = tl.exp2(scores - sums)
    used = weights
    if DROPS:
        keep = kept(mixed(line + t * _TOKEN), s + first, limit)
        used = tl.where(keep, weights, 0.0)
        pulls = tl.where(keep, pulls * boost, 0.0)
    return used, weights * (pulls - delta)


@triton.jit
def _pull(
    slope, q, grad, sums, delta, t, k, v, k_token, v_token, end, T, S, scale,
    mask, mask_query, bias, bias_query, line, first, limit, boost,
    HEAD: tl.constexpr, D: tl.constexpr, N: tl.constexpr, MASKED: tl.constexpr,
    CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Return the gradient of queries `[M, D]`, without the scale, after the keys below `end`."""
    for start in range(0, end, N):
        s = start + tl.arange(0, N)
        keys, values = tile(k, s, k_token, S, HEAD, D), tile(v, s, v_token, S, HEAD, D)
        products = tl.dot(q, tl.trans(keys), input_precision=PRECISION)
        pulls = tl.dot(grad, tl.trans(values), input_precision=PRECISION)
        _, slopes = _slopes(
            products, pulls, sums[:, None], delta[:, None], t[:, None], s[None, :], T, S, scale,
            mask, mask_query, bias, bias_query, line, first, limit, boost,
            MASKED, CAUSAL, BIASED, DROPS,
        )  # fmt: skip
        slope += tl.dot(slopes.to(keys.dtype), keys, input_precision=PRECISION)
    return slope


@triton.jit(do_not_specialize=SIZES)
def queries(
    Q, K, V, PK, PV, MASK, PMASK, BIAS, STARTS, WIDTHS, KEYS, GRAD, SUMS, DELTAS, DQ,
    T, S, P, tokens, blocks, scale, boost, limit, site, top,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    pk_row, pk_head, pk_token, pv_row, pv_head, pv_token,
    mask_row, mask_query, pmask_row, bias_row, bias_head, bias_query,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, PACKED: tl.constexpr, MASKED: tl.constexpr,
    PMASKED: tl.constexpr, CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
    PREFIXED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradient of M queries of one row and head; the arguments are the forward's."""
    place = tl.program_id(0)
    head = (place // blocks % HEADS).to(tl.int64)
    row = (place // blocks // HEADS).to(tl.int64)
    group = head // GROUPS
    t = place % blocks * M + tl.arange(0, M)
    base = row * T
    q, k, v = Q + row * q_row, K + row * k_row, V + row * v_row
    mask = MASK
    if PACKED:
        base = tl.load(STARTS + row)
        T = tl.load(WIDTHS + row)
        S = T
        q, k, v = Q + base * q_token, K + base * k_token, V + base * v_token
        mask = MASK + base
    elif MASKED:
        mask = MASK + row * mask_row
    bias = BIAS
    if BIASED:
        bias = BIAS + row * bias_row + head * bias_head
    line = 0
    if DROPS:
        line = mixed(hashed(tl.load(KEYS + row), site) + (head + top).to(tl.int32) * _HEAD)
    rows = tile(q + head * q_head, t, q_token, T, HEAD, D)
    grad, sums, delta = _kept_of(GRAD, SUMS, DELTAS, head, base, t, tokens, T, HEADS, HEAD, D)
    slope = tl.zeros([M, D], tl.float32)
    if PREFIXED:
        pmask = PMASK
        if PMASKED:
            pmask = PMASK + row * pmask_row
        slope = _pull(
            slope, rows, grad, sums, delta, t,
            PK + row * pk_row + group * pk_head, PV + row * pv_row + group * pv_head,
            pk_token, pv_token, P, T, P, scale, pmask, 0, BIAS, 0, line, -P, limit, boost,
            HEAD, D, N, PMASKED, False, False, DROPS, PRECISION,
        )  # fmt: skip
    end = S
    if CAUSAL:
        end = tl.minimum(S, place % blocks * M + M)
    slope = _pull(
        slope, rows, grad, sums, delta, t, k + group * k_head, v + group * v_head, k_token,
        v_token, end, T, S, scale, mask, mask_query, bias, bias_query, line, 0, limit, boost,
        HEAD, D, N, MASKED, CAUSAL, BIASED, DROPS, PRECISION,
    )  # fmt: skip
    put(DQ + base * HEADS * HEAD + head * HEAD, slope * scale, t, HEADS * HEAD, T, HEAD, D)


@triton.jit(do_not_specialize=[*SIZES, "first"])
def keys(
    Q, K, V, MASK, BIAS, STARTS, WIDTHS, KEYS, GRAD, SUMS, DELTAS, DK, DV,
    T, S, tokens, blocks, first, scale, boost, limit, site, top,
    q_row, q_head, q_token, k_row, k_head, k_token, v_row, v_head, v_token,
    mask_row, mask_query, bias_row, bias_head, bias_query,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, HEAD: tl.constexpr, D: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, PACKED: tl.constexpr, TEXT: tl.constexpr,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Write the gradients of N keys and values of one row and key head; tiles are transposed.

    K and V are those of a prefix or, under `TEXT`, of the text.
    """
    place = tl.program_id(0)
    group = (place // blocks % (HEADS // GROUPS)).to(tl.int64)
    row = (place // blocks // (HEADS // GROUPS)).to(tl.int64)
    s = place % blocks * N + tl.arange(0, N)
    base, origin = row * T, row * S  # first token of the row; first of its keys
    q, k, v = Q + row * q_row, K + row * k_row, V + row * v_row
    mask = MASK
    if MASKED:
        mask = MASK + row * mask_row
    if PACKED:
        base = tl.load(STARTS + row)
        T = tl.load(WIDTHS + row)
        q = Q + base * q_token
        if TEXT:
            origin = base
            S = T
            k, v, mask = K + base * k_token, V + base * v_token, MASK + base
    own = tile(k + group * k_head, s, k_token, S, HEAD, D)
    values = tile(v + group * v_head, s, v_token, S, HEAD, D)
    k_slope = tl.zeros([N, D], tl.float32)
    v_slope = tl.zeros([N, D], tl.float32)
    begin = 0
    if CAUSAL:
        begin = place % blocks * N // M * M
    for head in range(group * GROUPS, group * GROUPS + GROUPS):
        bias = BIAS
        if BIASED:
            bias = BIAS + row * bias_row + head * bias_head
        line = 0
        if DROPS:
            line = mixed(hashed(tl.load(KEYS + row), site) + (head + top).to(tl.int32) * _HEAD)
        for start in range(begin, T, M):
            t = start + tl.arange(0, M)
            rows = tile(q + head * q_head, t, q_token, T, HEAD, D)
            grad, sums, delta = _kept_of(
                GRAD, SUMS, DELTAS, head, base, t, tokens, T, HEADS, HEAD, D
            )
            products = tl.dot(own, tl.trans(rows), input_precision=PRECISION)
            pulls = tl.dot(values, tl.trans(grad), input_precision=PRECISION)
            used, slopes = _slopes(
                products, pulls, sums[None, :], delta[None, :], t[None, :], s[:, None], T, S,
                scale, mask, mask_query, bias, bias_query, line, first, limit, boost,
                MASKED, CAUSAL, BIASED, DROPS,
            )  # fmt: skip
            v_slope += tl.dot(used.to(grad.dtype), grad, input_precision=PRECISION)
            k_slope += tl.dot(slopes.to(rows.dtype), rows, input_precision=PRECISION)
    if DROPS:
        v_slope = v_slope * boost
    there = origin * (HEADS // GROUPS) * HEAD + group * HEAD
    step = (HEADS // GROUPS) * HEAD
    put(DK + there, k_slope * scale, s, step, S, HEAD, D)
    put(DV + there, v_slope, s, step, S, HEAD, D)


# Dropout, alone and before a norm. Lines `n` of cells are rows of a batch with up to two more axes,
# or packed tokens.


@triton.jit
def factors_of(
    n, s, KEYS, ROWS, COLUMNS, lines, first, second, begin, site, limit, boost, origin,
    AXES: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """Return what dropout multiplies the cells `s` of lines `n` by.

    Between rows and cells are `AXES` axes, `first` and `second` long; the first begins at `begin`.
    Packed, lines are tokens, and ROWS and COLUMNS say which.
    """
    row = n // (first * second)
    place = n // second % first + begin
    if PACKED:
        row = tl.load(ROWS + n, mask=n < lines, other=0)
        place = tl.load(COLUMNS + n, mask=n < lines, other=0).to(tl.int32)
    line = hashed(tl.load(KEYS + row, mask=n < lines, other=0), site)
    if AXES > 0:
        line = mixed(line + place * _HEAD)
    if AXES > 1:
        line = mixed(line + n % second * _TOKEN)
    return tl.where(kept(line, s - origin, limit), boost, 0.0)


LINES = ["lines", "first", "second", "begin", "site", "limit", "origin"]


@triton.jit(do_not_specialize=LINES)
def dropped(
    X, OUT, KEYS, ROWS, COLUMNS, lines, first, second, begin, site, limit, boost, origin, size,
    AXES: tl.constexpr, PACKED: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write N cells of M lines after dropout."""
    blocks = tl.cdiv(size, N)
    n = (tl.program_id(0) // blocks * M + tl.arange(0, M))[:, None]
    s = (tl.program_id(0) % blocks * N + tl.arange(0, N))[None, :]
    factors = factors_of(
        n, s, KEYS, ROWS, COLUMNS, lines, first, second, begin, site, limit, boost, origin,
        AXES, PACKED,
    )  # fmt: skip
    inside = (n < lines) & (s < size)
    at = n.to(tl.int64) * size + s
    out = tl.load(X + at, mask=inside, other=0.0).to(tl.float32) * factors
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=inside)


@triton.jit
def standard_of(x, inside, eps, SIZE: tl.constexpr):
    """Return a line with mean 0 and variance 1, and what it was multiplied by."""
    x = x.to(tl.float32)
    centred = tl.where(inside, x - tl.sum(x, 0) / SIZE, 0.0)
    rate = tl.rsqrt(tl.sum(centred * centred, 0) / SIZE + eps)
    return centred * rate, rate


@triton.jit(do_not_specialize=LINES)
def normed(
    X, RESIDUAL, WEIGHT, BIAS, OUT, SUM, KEYS, ROWS, COLUMNS,
    lines, first, second, begin, site, limit, boost, origin, eps,
    AXES: tl.constexpr, PACKED: tl.constexpr, DROPS: tl.constexpr, KEEPS: tl.constexpr,
    SIZE: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Write the norm of a line of X, after dropout, plus RESIDUAL; `KEEPS` the sum for backward."""
    n = tl.program_id(0)
    s = tl.arange(0, N)
    at = n.to(tl.int64) * SIZE + s
    inside = s < SIZE
    x = tl.load(X + at, mask=inside, other=0.0).to(tl.float32)
    if DROPS:
        x = x * factors_of(
            n, s, KEYS, ROWS, COLUMNS, lines, first, second, begin, site, limit, boost, origin,
            AXES, PACKED,
        )  # fmt: skip
    x = (x + tl.load(RESIDUAL + at, mask=inside, other=0.0).to(tl.float32)).to(OUT.dtype.element_ty)
    standard, _ = standard_of(x, inside, eps, SIZE)
    weight = tl.load(WEIGHT + s, mask=inside, other=0.0).to(tl.float32)
    out = standard * weight + tl.load(BIAS + s, mask=inside, other=0.0).to(tl.float32)
    tl.store(OUT + at, out.to(OUT.dtype.element_ty), mask=inside)
    if KEEPS:
        tl.store(SUM + at, x, mask=inside)


@triton.jit(do_not_specialize=LINES)
def norm_slopes(
    GRAD, SUM, WEIGHT, DR, DX, KEYS, ROWS, COLUMNS,
    lines, first, second, begin, site, limit, boost, origin, eps,
    AXES: tl.constexpr, PACKED: tl.constexpr, DROPS: tl.constexpr, SIZE: tl.constexpr,
    N: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a line of the residual and, after a dropout, of `x`."""
    n = tl.program_id(0)
    s = tl.arange(0, N)
    at = n.to(tl.int64) * SIZE + s
    inside = s < SIZE
    standard, rate = standard_of(tl.load(SUM + at, mask=inside, other=0.0), inside, eps, SIZE)
    slopes = tl.load(GRAD + at, mask=inside, other=0.0).to(tl.float32)
    slopes = slopes * tl.load(WEIGHT + s, mask=inside, other=0.0).to(tl.float32)
    common = (tl.sum(slopes, 0) + standard * tl.sum(slopes * standard, 0)) / SIZE
    slopes = (slopes - common) * rate
    tl.store(DR + at, slopes.to(DR.dtype.element_ty), mask=inside)
    if DROPS:
        slopes = slopes * factors_of(
            n, s, KEYS, ROWS, COLUMNS, lines, first, second, begin, site, limit, boost, origin,
            AXES, PACKED,
        )  # fmt: skip
        tl.store(DX + at, slopes.to(DX.dtype.element_ty), mask=inside)
