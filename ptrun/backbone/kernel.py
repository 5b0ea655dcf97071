"""Attention by Triton for CUDA: whether it is used, its arguments, and a probe of it.

With a prefix, a mask, a bias and keyed dropout, without scores in memory. Letters in shapes: B
rows, T queries, S keys, P vectors of a prefix, d head size, N packed tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone import launch
from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import Keyed, drop, limit, scale
from ptrun.backbone.packing import LOOK_BACK, Packing


@dataclass(frozen=True)
class Terms:
    """What attention depends on beside its queries, keys and values.

    Args:
        scale: the factor of scores.
        mask: bool `[B, 1, 1 or T, S]`; None if every key is visible. Packed tokens have their own.
        bias: `[1 or B, heads, T, S]`, added to the scores of the text; it gets no gradient.
        packing: of packed tokens, or None.
        dropout: the dropout of the weights; None switches it off.
    """

    scale: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    packing: Packing | None = None
    dropout: Keyed | None = None


def tiles_of(
    dtype: torch.dtype, width: int, length: int, *, backward: bool
) -> tuple[int, int, int, int]:
    """Return the queries and keys of a tile, and the warps and stages of a program.

    They are for a type, a head size and the most queries of a row, so no run tunes them. On compute
    capability 8.6 they fit in its 99 KiB of shared memory.
    """
    if dtype == torch.float32:  # without tensor cores a program keeps its tiles in registers
        return (32, 32, 4, 2) if width <= 64 else (16, 16, 4, 1)
    if width > 128:
        return 32, 32, 8, 1
    return (64, 64, 8, 2) if width > 64 or length <= 64 or backward else (128, 64, 8, 3)


@dataclass(frozen=True)
class Launch:
    """One attention, ready to be computed or differentiated.

    Args:
        query: `[B, heads, T, d]`; all vectors have stride 1 along d.
        key, value: `[B, key heads, S, d]`.
        prefix_key, prefix_value: `[B, key heads, P, d]`, or None.
        prefix_mask: bool `[B, P]`, or None.
        terms: the rest.

    >>> import torch
    >>> from ptrun.backbone.kernel import Launch, Terms
    >>> query = torch.ones(1, 2, 4, 16)
    >>> Launch(query, query, query, None, None, None, Terms(scale=0.25)).forward()[0].shape
    torch.Size([1, 4, 2, 16])
    """

    query: Tensor
    key: Tensor
    value: Tensor
    prefix_key: Tensor | None
    prefix_value: Tensor | None
    prefix_mask: Tensor | None
    terms: Terms

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return the output `[B, T, heads, d]` and a number per query for backward, see `sums`.

        The `sums [heads, B * T]` are the logarithms, base 2, of the sums of the weights.
        """
        batch, heads, length, width = self.query.shape
        out = self.query.new_empty(batch, length, heads, width)
        sums = self.query.new_empty(heads, batch * length, dtype=torch.float32)
        self._run("forward", heads, self._tokens, {"OUT": out, "SUMS": sums})
        return out, sums

    def deltas(self, out: Tensor, grad: Tensor) -> Tensor:
        """Return the products `[heads, B * T]` of output and gradient, both `[B, T, heads, d]`."""
        tokens, heads = out.shape[0] * out.shape[1], out.shape[2]
        deltas = out.new_empty(heads, tokens, dtype=torch.float32)
        self._run("deltas", heads, tokens, {"OUT": out, "GRAD": grad, "DELTAS": deltas}, rows=1)
        return deltas

    def queries(self, **tensors: Tensor) -> Tensor:
        """Return the gradient of the queries; `tensors` are GRAD, SUMS and DELTAS."""
        (slope,) = _like(self.query)
        self._run("queries", self.query.shape[1], self._tokens, tensors | {"DQ": slope})
        return slope

    def keys(self, **tensors: Tensor) -> list[Tensor]:
        """Return the gradients of the keys and values of the text."""
        slopes = _like(self.key, self.value)
        length = self._tokens if self.terms.packing else self.key.shape[2]
        others = {"DK": slopes[0], "DV": slopes[1], "TEXT": True, "first": 0}
        self._run("keys", self.key.shape[1], length, tensors | others)
        return slopes

    def prefix(self, **tensors: Tensor) -> list[Tensor]:
        """Return the gradients of the keys and values of the prefix."""
        key, value = self.prefix_key, self.prefix_value
        assert key is not None and value is not None
        slopes, length = _like(key, value), key.shape[2]
        others = _vectors("k", key) | _vectors("v", value) | _mask("", self.prefix_mask)
        others |= {"DK": slopes[0], "DV": slopes[1], "S": length, "first": -length}
        others |= dict.fromkeys(("TEXT", "CAUSAL", "BIASED"), False)
        self._run("keys", key.shape[1], length, tensors | others)
        return slopes

    @property
    def _tokens(self) -> int:
        """The most queries of a row."""
        packing = self.terms.packing
        return packing.width if packing else self.query.shape[2]

    def _run(
        self, name: str, heads: int, length: int, others: Mapping[str, Any], rows: int = 0
    ) -> None:
        """Start a program for each row, each head and each tile of the length."""
        packing, arguments = self.terms.packing, self._arguments(backward=name != "forward")
        arguments |= others
        blocks = -(-length // arguments["N" if name == "keys" else "M"])
        programs = (rows or (packing.size[0] if packing else self.query.shape[0])) * heads * blocks
        numbers = arguments["warps"], arguments["stages"]
        launch.start(name, programs, arguments | {"blocks": blocks}, self.query.device, *numbers)

    def _arguments(self, *, backward: bool) -> dict[str, Any]:
        """Return the arguments that kernels share, by name, and more."""
        terms, packing = self.terms, self.terms.packing
        batch, heads, length, width = self.query.shape
        mask = packing.real[None, None, None, :] if packing else terms.mask
        tiles = tiles_of(self.query.dtype, width, self._tokens, backward=backward)
        precise = torch.get_float32_matmul_precision() == "highest"
        return {
            **_vectors("q", self.query),
            **_vectors("k", self.key),
            **_vectors("v", self.value),
            **_vectors("pk", self.prefix_key),
            **_vectors("pv", self.prefix_value),
            **_mask("", mask),
            **_mask("p", self.prefix_mask),
            **_bias(terms.bias),
            **_drops(terms.dropout, self.query.dtype),
            "STARTS": packing.starts if packing else None,
            "WIDTHS": packing.widths if packing else None,
            "PACKED": packing is not None,
            "CAUSAL": packing is not None and packing.reach == LOOK_BACK,
            "PREFIXED": self.prefix_key is not None,
            "T": length,
            "S": self.key.shape[2],
            "P": 0 if self.prefix_key is None else self.prefix_key.shape[2],
            "tokens": batch * length,
            "scale": terms.scale,
            "HEADS": heads,
            "GROUPS": heads // self.key.shape[1],
            "HEAD": width,
            "D": max(16, 1 << (width - 1).bit_length()),
            **dict(zip(("M", "N", "warps", "stages"), tiles, strict=True)),
            "PRECISION": "ieee" if precise else "tf32",
        }


def _vectors(name: str, vectors: Tensor | None) -> dict[str, Any]:
    """Return the pointer and the strides of vectors `[B, heads, n, d]`."""
    row, head, token = (0, 0, 0) if vectors is None else vectors.stride()[:3]
    strides = {f"{name}_row": row, f"{name}_head": head, f"{name}_token": token}
    return {name.upper(): vectors, **strides}


def _mask(name: str, mask: Tensor | None) -> dict[str, Any]:
    """Return the arguments of a mask `[B, 1, 1 or T, S]`, or `[B, P]` of a prefix."""
    if mask is None:
        row, query, kind = 0, 0, 0
    else:
        mask = (mask if mask.stride(-1) == 1 else mask.contiguous()).view(torch.uint8)
        by_query = mask.dim() == 4 and mask.shape[2] > 1
        row = mask.stride(0) if mask.shape[0] > 1 else 0
        query, kind = mask.stride(-2) if by_query else 0, 1 + by_query
    sizes = {f"{name}mask_row": row, f"{name}mask_query": query}
    return {f"{name}mask".upper(): mask, f"{name}masked".upper(): kind, **sizes}


def _bias(bias: Tensor | None) -> dict[str, Any]:
    """Return the arguments of a bias; it is copied if neighbouring keys are not neighbours."""
    if bias is None:
        return {"BIAS": None, "BIASED": False, "bias_row": 0, "bias_head": 0, "bias_query": 0}
    bias = bias.contiguous()
    row, head, query, _ = bias.stride()
    row = row if bias.shape[0] > 1 else 0
    strides = {"bias_row": row, "bias_head": head, "bias_query": query}
    return {"BIAS": bias, "BIASED": True, **strides}


def _drops(dropout: Keyed | None, dtype: torch.dtype) -> dict[str, Any]:
    """Return the arguments of dropout; the plain path scales by the same number."""
    if dropout is None:
        return {"KEYS": None, "DROPS": False, "site": 0, "top": 0, "limit": 0, "boost": 1.0}
    drops = {"KEYS": dropout.keys, "DROPS": True, "site": dropout.site, "top": dropout.start}
    return drops | {"limit": limit(dropout.p), "boost": scale(dropout.p, dtype)}


def _like(*vectors: Tensor) -> list[Tensor]:
    """Return empty gradients `[B, heads, n, d]`, with the heads of a token side by side."""
    batch, heads, length, width = vectors[0].shape
    slopes = vectors[0].new_empty(len(vectors), batch, length, heads, width)
    return [slope.transpose(1, 2) for slope in slopes]


def attention(
    query: Tensor, key: Tensor, value: Tensor, prefix: Prefix | None, terms: Terms
) -> Tensor:
    """Return attention over prefix and tokens, `[B, T, heads, d]`.

    `query` is `[B, heads, T, d]`; `key` and `value` are `[B, key heads, S, d]`. Packed, B is 1 and
    T and S are N, but the rows of the prefix are those of the batch. Computation is in the type of
    the queries, or that of autocast. A query that sees no key gives zeros.
    """
    device, dtype = query.device.type, query.dtype
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)  # the meta device has no autocast
    vectors: list[Tensor | None] = [query, key, value, None, None]
    mask = None
    if prefix is not None and prefix.key.shape[2]:
        vectors[3:], mask = [prefix.key, prefix.value], prefix.mask
    typed = (None if vector is None else vector.to(dtype) for vector in vectors)
    dense = (v if v is None or v.stride(-1) == 1 else v.contiguous() for v in typed)
    out: Tensor = _Attention.apply(*dense, mask, terms)  # type: ignore[no-untyped-call]
    return out


class _Attention(torch.autograd.Function):
    """The forward pass keeps its inputs, its output and one number per query and head."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        out, sums = Launch(*arguments).forward()
        ctx.save_for_backward(*arguments[:5], out, sums)
        ctx.rest = arguments[5:]
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        *vectors, out, sums = ctx.saved_tensors
        kernel, grad = Launch(*vectors, *ctx.rest), gradients[0].contiguous()
        tensors = {"GRAD": grad, "SUMS": sums, "DELTAS": kernel.deltas(out, grad)}
        needed = ctx.needs_input_grad
        query = kernel.queries(**tensors) if needed[0] else None
        text = kernel.keys(**tensors) if any(needed[1:3]) else [None, None]
        prefix = kernel.prefix(**tensors) if any(needed[3:5]) else [None, None]
        return query, *text, *prefix, None, None


_WIDEST = 256  # larger tiles do not fit in shared memory


def suits(query: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None) -> bool:
    """Return whether the kernel computes an attention: on CUDA, where it agrees with torch.

    The plain path computes the rest: on a CPU, in fp64, with a learned bias, with a head size over
    256, and that of DeBERTa, whose bias is a product of queries and keys.

    Args:
        query: `[B, heads, T, d]`.
        value: `[B, key heads, S, d]`.
        mask: `[B, 1, 1 or T, S]` or None; the kernel reads a bool one.
        bias: `[1 or B, heads, T, S]` or None; the kernel has no gradient for it.
    """
    width = query.shape[-1]
    if not launch.chosen(query) or width > _WIDEST or width != value.shape[-1]:
        return False
    if mask is not None and (mask.dtype != torch.bool or mask.shape[1] != 1):
        return False
    if bias is not None and bias.requires_grad:
        return False
    if not query.is_cuda:
        return True
    return launch.agrees("attention", error, query.device, query.dtype, width)


TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""The largest difference, as a share of the largest number of an output or a gradient."""

_TF32 = 3e-3
"""The tolerance in fp32 where torch may round products to TF32."""

_ROWS, _HEADS, _TOKENS, _PROMPT, _SITE, _P = 2, 2, 80, 3, 0, 0.1
"""80 tokens use the largest tiles."""


def error(device: torch.device, dtype: torch.dtype, width: int) -> float:
    """Return how far the kernel is from torch, over the output and all gradients.

    1 is the tolerance of the type. `width` is the head size.
    """
    keys = torch.arange(_ROWS, device=device)
    real = torch.arange(_TOKENS, device=device) < (_TOKENS - 9 * keys)[:, None]
    fixed = []  # `[B, heads, length, d]`, without torch's random numbers
    for place, length in enumerate((_TOKENS, _TOKENS, _TOKENS, _PROMPT, _PROMPT)):
        count = _ROWS * _HEADS * length * width
        numbers = (torch.arange(count, dtype=torch.float64) * (0.7 + place)).sin()
        fixed.append(numbers.view(_ROWS, _HEADS, length, width).to(device).to(dtype))

    def computed(fused: bool, dtype: torch.dtype) -> list[Tensor]:
        """Return the output `[B, T, heads, d]` and the gradients of all vectors."""
        leaves = [vector.detach().to(dtype).requires_grad_() for vector in fixed]
        query, key, value, before, old = leaves
        if fused:
            terms = Terms(width**-0.5, real[:, None, None], dropout=Keyed(keys, _SITE, _P))
            out = attention(query, key, value, Prefix(before, old), terms)
        else:
            key, value = torch.cat([before, key], dim=2), torch.cat([old, value], dim=2)
            scores = query @ key.transpose(2, 3) * width**-0.5
            scores[..., _PROMPT:].masked_fill_(~real[:, None, None], -torch.inf)
            weights = drop(scores.softmax(dim=-1), keys, _SITE, _P, origin=_PROMPT)
            out = (weights @ value).transpose(1, 2)
        return [out, *torch.autograd.grad(out, leaves, query.detach().transpose(1, 2))]

    pairs = zip(computed(True, dtype), computed(False, torch.float64), strict=True)
    rounds = dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    return max(distance(*pair) for pair in pairs) / (_TF32 if rounds else TOLERANCE[dtype])


def distance(tensor: Tensor, other: Tensor) -> float:
    """Return the largest difference, as a share of the largest number; nan if one is nan."""
    return float((tensor.detach() - other.detach()).abs().max() / other.detach().abs().max())
