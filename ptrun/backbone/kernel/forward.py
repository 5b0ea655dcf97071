"""The forward kernel: one program reads all keys for M queries of one row and head.

It keeps the maximum and the sum of the softmax as it goes, so scores exist one tile at a time.
"""

import triton
import triton.language as tl

from ptrun.backbone.kernel.tiles import hashed, kept, put, scored, tile


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
            weights = tl.where(kept(line, t[:, None], s[None, :] + first, limit), weights, 0.0)
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
        line = hashed(tl.load(KEYS + row), site, head + top)
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
