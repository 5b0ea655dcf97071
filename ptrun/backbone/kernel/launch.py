"""The arguments of the kernels: pointers, strides, sizes, and what is known when they compile.

Triton is imported at the first launch. On the meta device nothing is launched, so memory is planned
without Triton.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.dropout import limit, scale
from ptrun.backbone.packing.packed import Packing


@dataclass(frozen=True)
class Keyed:
    """The dropout of attention weights, as `ptrun.backbone.dropout.drop` has it.

    Args:
        keys: `[B]` int64 keys of the rows.
        site: the site.
        p: the probability.
        start: the first head of a rank.
    """

    keys: Tensor
    site: int
    p: float
    start: int = 0


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


@dataclass(frozen=True)
class Tiles:
    """The queries and keys of a tile, and the warps and stages of a program."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 2


def tiles_of(dtype: torch.dtype, width: int, length: int, *, backward: bool) -> Tiles:
    """Return the tiles for a type, a head size and the most queries of a row.

    They are fixed, so no run tunes them. On compute capability 8.6 they fit in its 99 KiB of shared
    memory.
    """
    if dtype == torch.float32:  # without tensor cores a program keeps its tiles in registers
        return Tiles(32, 32) if width <= 64 else Tiles(16, 16, stages=1)
    if width > 128:
        return Tiles(32, 32, warps=8, stages=1)
    if width > 64 or length <= 64 or backward:
        return Tiles(64, 64, warps=8)
    return Tiles(128, 64, warps=8, stages=3)


@dataclass(frozen=True)
class Launch:
    """One attention, ready to be computed or differentiated.

    Args:
        query: `[B, heads, T, d]`; all vectors have stride 1 along d.
        key, value: `[B, key heads, S, d]`.
        prefix_key, prefix_value: `[B, key heads, P, d]`, or None.
        prefix_mask: bool `[B, P]`, or None.
        terms: the rest.
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
        given = self._arguments(backward=False) | {"OUT": out, "SUMS": sums}
        self._run("forward", given, heads, self._tokens, given["M"])
        return out, sums

    def deltas(self, out: Tensor, grad: Tensor) -> Tensor:
        """Return the products `[heads, B * T]` of output and gradient, both `[B, T, heads, d]`."""
        tokens, heads = out.shape[0] * out.shape[1], out.shape[2]
        found = out.new_empty(heads, tokens, dtype=torch.float32)
        given = self._arguments(backward=True) | {"OUT": out, "GRAD": grad, "DELTAS": found}
        self._run("deltas", given, heads, tokens, given["M"], rows=1)
        return found

    def queries(self, **known: Tensor) -> Tensor:
        """Return the gradient of the queries; `known` are GRAD, SUMS and DELTAS."""
        slope = _like(self.query)
        given = self._arguments(backward=True) | known | {"DQ": slope}
        self._run("queries", given, self.query.shape[1], self._tokens, given["M"])
        return slope

    def keys(self, **known: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the keys and values of the text."""
        given = self._arguments(backward=True) | {"TEXT": True, "first": 0}
        length = self._tokens if self.terms.packing else self.key.shape[2]
        return self._of_keys(self.key, self.value, length, given | known)

    def prefix(self, **known: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the keys and values of the prefix."""
        key, value = self.prefix_key, self.prefix_value
        assert key is not None and value is not None
        length = key.shape[2]
        given = self._arguments(backward=True) | {"TEXT": False, "first": -length, "S": length}
        given |= _vectors("k", key) | _vectors("v", value) | _mask("", self.prefix_mask)
        given |= {"CAUSAL": False, "BIASED": False}
        return self._of_keys(key, value, length, given | known)

    def _of_keys(
        self, key: Tensor, value: Tensor, length: int, given: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        slopes = _like(key), _like(value)
        given = given | {"DK": slopes[0], "DV": slopes[1]}
        self._run("keys", given, key.shape[1], length, given["N"])
        return slopes

    @property
    def _tokens(self) -> int:
        """The most queries of a row."""
        packing = self.terms.packing
        return packing.width if packing else self.query.shape[2]

    def _run(
        self, name: str, given: dict[str, Any], heads: int, length: int, part: int, rows: int = 0
    ) -> None:
        """Start a program for each row, each head and each `part` of the length."""
        if self.query.is_meta:
            return
        from ptrun.backbone.kernel import backward, forward

        kernel = getattr(forward if name == "forward" else backward, name)
        blocks = -(-length // part)
        given = given | {"blocks": blocks}
        packing = self.terms.packing
        rows = rows or (packing.size[0] if packing else self.query.shape[0])
        options = {"num_warps": given["warps"], "num_stages": given["stages"]}
        options |= {"enable_fp_fusion": True, "sanitize_overflow": False}  # hashes overflow
        with _current(self.query):
            kernel[(rows * heads * blocks,)](**{n: given[n] for n in kernel.arg_names}, **options)

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
            "CAUSAL": packing is not None and packing.causal,
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
            "M": tiles.queries,
            "N": tiles.keys,
            "warps": tiles.warps,
            "stages": tiles.stages,
            "PRECISION": "ieee" if precise else "tf32",
        }


def _current(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the device of a tensor the current one, on which Triton starts kernels."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


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


def _drops(own: Keyed | None, dtype: torch.dtype) -> dict[str, Any]:
    """Return the arguments of dropout; the plain path scales by the same number."""
    if own is None:
        return {"KEYS": None, "DROPS": False, "site": 0, "top": 0, "limit": 0, "boost": 1.0}
    numbers = {"limit": limit(own.p), "boost": scale(own.p, dtype)}
    return {"KEYS": own.keys, "DROPS": True, "site": own.site, "top": own.start, **numbers}


def _like(vectors: Tensor) -> Tensor:
    """Return an empty gradient `[B, heads, n, d]`, with the heads of a token side by side."""
    batch, heads, length, width = vectors.shape
    return vectors.new_empty(batch, length, heads, width).transpose(1, 2)
