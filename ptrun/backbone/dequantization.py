"""Plain numbers from weights that are quantized in their files, one tensor at a time.

The formulas are those of transformers' quantizers (5.23) and of bitsandbytes, and give the same
bits. Names and dtypes of the tensors say which are codes, so no list of modules is read.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.files import quantized_by, read_config, unquantized
from ptrun.errors import UserError

Parts = dict[str, Any]  # codes and scales: tensors, or what `[...]` reads as one
_PARTS = {  # the end of a name: the end of the name of its codes, and the part
    **{f".{part}": ("", part) for part in ("absmax", "quant_map")},
    **{f".nested_{part}": ("", f"nested_{part}") for part in ("absmax", "quant_map")},
    **{f".quant_state.bitsandbytes__{kind}": ("", "quant_state") for kind in ("nf4", "fp4")},
    **{".SCB": (".weight", "SCB"), ".weight_format": (".weight", "weight_format")},
    **{f".{part}": (".weight", "scale") for part in ("scale", "qscale_weight")},
    **{"_scale_inv": ("", "scale"), "_scale": ("", "scale"), "_zero_point": ("", "zero_point")},
    **{"_blocks": ("", "blocks"), "_scales": ("", "scales")},
}
_ENDINGS = re.compile(f"({'|'.join(map(re.escape, _PARTS))})$")
UNUSED = re.compile(
    r"(input|output|activation)_(scale(_ub)?|zero_point)$|qscale_act$|\.[qkv]_scale$"
)
"""Names of the scales of activations, and of cached keys and values."""
_OF_CODES = re.compile(r"\.weight_(scale|scale_inv|zero_point)$|\.qscale_weight$")
"""Names of scales that no plain model has; `_scale` may be a norm's."""
_UNREAD = re.compile(r"\.(weight_(packed|g_idx|global_scale|scale_2)|qweight|qzeros)$")
_FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_CODES = (*_FP8, torch.int8, torch.uint8, torch.int32)
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # the levels of 4-bit floats, without a sign
_CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True)
class Dequantized:
    """A tensor of plain numbers, computed from its codes and scales when it is indexed.

    >>> import torch
    >>> from ptrun.backbone.dequantization import Dequantized
    >>> parts = {"codes": torch.tensor([[2, 4]]), "scale": torch.tensor(0.5)}
    >>> times = lambda tensors: tensors["codes"] * tensors["scale"]
    >>> Dequantized(parts, torch.Size([1, 2]), torch.float32, times)[0]
    tensor([1., 2.])
    """

    parts: Parts
    shape: torch.Size
    dtype: torch.dtype  # that of config.json, for a file of plain numbers
    formula: Callable[[dict[str, Tensor]], Tensor]

    def __getitem__(self, index: Any) -> Tensor:
        return self.formula({name: part[...] for name, part in self.parts.items()})[index]

    def get_shape(self) -> list[int]:
        """Return the shape, as a slice of safetensors does."""
        return list(self.shape)


def dequantized(tensors: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tensors of a folder with codes and scales joined; refuse what does not fit.

    `tensors` have a `shape`, a `dtype`, and their numbers at `[...]`.
    """
    joiner = _Joiner(tensors, folder)
    # 1. The names of the scales, by the name of their codes
    plain, groups = dict[str, Any](), defaultdict[str, dict[str, str]](dict)
    for name, tensor in tensors.items():
        ending = _ENDINGS.search(name) if joiner.method else None
        codes, part = _PARTS[ending[0]] if ending else ("", "")
        if _UNREAD.search(name):
            raise joiner.error(name, "is of a format that ptrun does not read", advice=True)
        if joiner.method and UNUSED.search(name):
            continue
        if ending is None or (part in ("blocks", "scales") and tensor.dtype != torch.uint8):
            plain[name] = tensor
        else:
            groups[name[: ending.start()] + codes][part] = name
    # 2. The numbers of each
    numbers = dict[str, Any]()
    for codes, names in groups.items():
        dtype = plain[codes].dtype if codes in plain else None
        if dtype in _CODES or not names.keys() <= {"scale", "zero_point"}:
            numbers[codes] = joiner.joined(codes, names)
            plain.pop(codes, None)
        elif sure := next((name for name in names.values() if _OF_CODES.search(name)), None):
            raise joiner.error(sure, f"is the scale of {codes}, which is {dtype or 'missing'}")
        else:
            plain |= {name: tensors[name] for name in names.values()}
    # 3. What is left has no scale
    for name, tensor in plain.items():
        if tensor.dtype in (_CODES if joiner.method else _FP8) and not name.endswith(".bias"):
            lack = "a scale" if joiner.method else "quantization_config in config.json"
            raise joiner.error(name, f"holds codes ({tensor.dtype}) without {lack}")
    return plain | numbers


class _Joiner:
    """Joins codes and scales of a folder, and refuses those that do not fit."""

    def __init__(self, tensors: Mapping[str, Any], folder: Path):
        self.tensors, self.folder, self.config = tensors, folder, read_config(folder)
        self.method = quantized_by(self.config)
        self.settings = self.config.get("quantization_config") or {}
        stated = str(self.config.get("dtype") or self.config.get("torch_dtype"))
        self.dtype = _FLOATS.get(stated, torch.bfloat16)

    def error(self, name: str, problem: str, *, advice: bool = False) -> UserError:
        """Return an error about a tensor; with `advice` it names the unquantized model."""
        say = unquantized(self.folder, self.config) if advice else "Copy the whole model again."
        return UserError(f"{self.folder}: {name} {problem}.\n{say}")

    def part(self, name: str, *sizes: int | tuple[int, ...]) -> Any:
        """Return a tensor; refuse its lack, and another number of elements or shape."""
        if name not in self.tensors:
            raise self.error(name, "is missing")
        tensor = self.tensors[name]
        if sizes and tuple(tensor.shape) not in sizes and tensor.shape.numel() not in sizes:
            shapes = ([size] if isinstance(size, int) else list(size) for size in sizes)
            expected = " or ".join(map(str, shapes))
            raise self.error(name, f"is {tensor.dtype} {list(tensor.shape)}, expected {expected}")
        return tensor

    def joined(self, codes: str, names: Mapping[str, str]) -> Dequantized:
        """Return the numbers that codes stand for; `names` are those of their scales."""
        if names.keys() & {"blocks", "scales"}:
            parts, shape, formula = self._mxfp4(codes)
        elif names.keys() & {"SCB", "weight_format"}:
            parts, shape, formula = self._rows(codes)
        elif names.keys() & {"scale", "zero_point"}:
            parts, shape, formula = self._scaled(codes, names.get("scale", f"{codes}_scale"))
        else:
            state = f"{codes}.quant_state.bitsandbytes__nf4"
            parts, shape, formula = self._four_bits(codes, names.get("quant_state", state))
        is_gpt2 = self.method == "bitsandbytes" and self.config["model_type"] == "gpt2"
        if is_gpt2 and _CONV1D.search(codes):  # quantized as `nn.Linear`, the other way round
            return Dequantized(parts, shape[::-1], self.dtype, lambda tensors: formula(tensors).T)
        return Dequantized(parts, shape, self.dtype, formula)

    def _four_bits(self, codes: str, state: str) -> Any:
        try:
            facts = json.loads(bytes(self.part(state)[...].tolist()))
            shape = facts["shape"] = torch.Size(facts["shape"])
            facts["dtype"] = _FLOATS[facts["dtype"]]
            sizes = {"quant_map": 16, "absmax": -(-shape.numel() // facts["blocksize"])}
            if "nested_blocksize" in facts:
                blocks = -(-sizes["absmax"] // facts["nested_blocksize"])
                sizes |= {"nested_quant_map": 256, "nested_absmax": blocks}
                facts["nested_offset"] = float(facts["nested_offset"])
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise self.error(state, "is no state of bitsandbytes") from error
        parts = {part: self.part(f"{codes}.{part}", size) for part, size in sizes.items()}
        per_item = 2 * self.part(codes).dtype.itemsize
        parts["codes"] = self.part(codes, -(-shape.numel() // per_item))
        return parts, shape, partial(_four_bits, facts)

    def _rows(self, codes: str) -> Any:
        stem, numbers = codes.removesuffix("weight"), self.part(codes)
        parts = {"codes": numbers, "scale": self.part(f"{stem}SCB", numbers.shape[0])}
        layout = self.tensors.get(f"{stem}weight_format")
        if layout is not None and layout[...].any():
            raise self.error(f"{stem}weight_format", "is a layout for GPUs, expected 0 (row)")
        return parts, numbers.shape, _rows

    def _mxfp4(self, codes: str) -> Any:
        blocks = self.part(f"{codes}_blocks")
        if len(blocks.shape) != 4 or blocks.shape[3] != 16:
            expected = "expected [experts, outputs, inputs / 32, 16]"
            raise self.error(f"{codes}_blocks", f"is {list(blocks.shape)}, {expected}")
        experts, outputs, groups, _ = blocks.shape
        scales = self.part(f"{codes}_scales", (experts, outputs, groups))
        parts = {"blocks": blocks, "scales": scales}
        return parts, torch.Size((experts, groups * 32, outputs)), _mxfp4

    def _scaled(self, codes: str, name: str) -> Any:
        tensor, in_place = self.part(codes), self.method == "compressed-tensors"
        if len(tensor.shape) not in (2, 3) or tensor.dtype not in _CODES[: 3 if in_place else 2]:
            problem = f"is {tensor.dtype} {list(tensor.shape)}, which ptrun does not read"
            raise self.error(codes, problem, advice=True)
        *lead, rows, columns = tensor.shape
        # 1. The shapes of scales that config.json allows, each with its grid and blocks
        grids = dict[int | tuple[int, ...], Any]()
        for r, c in self._blocks(rows, columns):
            grid = (*lead, -(-rows // r), -(-columns // c))
            grids[grid] = grid, (r, c)
            if (r, c) == (rows, columns):  # a scale of a whole matrix may lack axes
                grids |= {tuple(lead): grids[grid]} | ({} if lead else {(1,): grids[grid]})
        scale = self.part(name, *grids)
        parts = {"codes": tensor, "scale": scale}
        if f"{codes}_zero_point" in self.tensors:
            parts["zero_point"] = self.part(f"{codes}_zero_point", tuple(scale.shape))
        # 2. compressed-tensors multiplies in the dtype of the scales, except for fp8 experts
        in_place &= not (tensor.dtype in _FP8 and _EXPERT.search(codes))
        dtype = scale.dtype if in_place else torch.float32
        if dtype not in _FLOATS.values():
            raise self.error(name, f"is {dtype}, expected a floating-point number")
        grid, block = grids[tuple(scale.shape)]
        return parts, tensor.shape, partial(_scaled, grid, block, dtype)

    def _blocks(self, rows: int, columns: int) -> list[tuple[int, int]]:
        """Return the sizes of the blocks that may share a scale, as config.json states them."""
        row, whole = (1, columns), (rows, columns)
        groups = (self.settings.get("config_groups") or {}).values()
        sizes: list[Any] = []
        if self.method == "fbgemm_fp8":
            sizes = [row]
        elif "weight_block_size" in self.settings:
            sizes = [self.settings["weight_block_size"] or whole]
        for weights in filter(None, (group.get("weights") for group in groups)):
            forms = {"channel": row, "tensor": whole, "block": weights.get("block_structure")}
            forms["group"] = (1, weights.get("group_size"))
            sizes.append(forms.get(str(weights.get("strategy")), weights.get("strategy")))
        for size in sizes:
            if not size or len(size) != 2 or not all(type(n) is int and n > 0 for n in size):
                place = f"{self.folder / 'config.json'}: quantization_config"
                raise UserError(f"{place} has blocks of {size}, expected such as [128, 128].")
        default = [(128, 128)] if self.method == "fp8" else []
        return [(r, c) for r, c in sizes] or [row, whole, *default]


# The formulas


def _four_bits(facts: Mapping[str, Any], parts: dict[str, Tensor]) -> Tensor:
    """Return levels times the largest number of their block, which may be quantized too."""
    absmax = parts["absmax"].flatten()
    if "nested_absmax" in parts:
        spread = parts["nested_absmax"].repeat_interleave(facts["nested_blocksize"])[: len(absmax)]
        absmax = parts["nested_quant_map"][absmax.int()] * spread + facts["nested_offset"]
    levels = _levels(parts["codes"].flatten(), parts["quant_map"], high_first=True)
    spread = absmax.float().repeat_interleave(facts["blocksize"])
    count = facts["shape"].numel()
    return (levels[:count] * spread[:count]).view(facts["shape"]).to(facts["dtype"])


def _rows(parts: dict[str, Tensor]) -> Tensor:
    """Return a 127th of codes times the largest number of their row."""
    return parts["codes"] * parts["scale"].view(-1, 1) * 7.874015718698502e-3


def _mxfp4(parts: dict[str, Tensor]) -> Tensor:
    """Return `[E, inputs, outputs]` from blocks of 32 codes that share an exponent."""
    numbers = torch.ldexp(_levels(parts["blocks"]), parts["scales"].int()[..., None] - 127)
    return numbers.flatten(-2).transpose(1, 2).contiguous()


def _scaled(
    grid: tuple[int, ...], block: tuple[int, int], dtype: torch.dtype, parts: dict[str, Tensor]
) -> Tensor:
    """Return codes minus their zero, times the scale of their block."""
    numbers, scale = parts["codes"].to(dtype), parts["scale"]
    if scale.dtype == torch.uint8:  # exponents
        scale = (scale.float() - 127).exp2()

    def spread(tensor: Tensor) -> Tensor:
        tensor = tensor.to(dtype).view(grid)
        for axis in (-2, -1):
            if tensor.shape[axis] > 1:  # the last block may be cut
                tensor = tensor.repeat_interleave(block[axis], axis)
                tensor = tensor.narrow(axis, 0, numbers.shape[axis])
        return tensor

    if "zero_point" in parts:
        numbers = numbers - spread(parts["zero_point"])
    return numbers * spread(scale)


def _levels(codes: Tensor, levels: Tensor | None = None, *, high_first: bool = False) -> Tensor:
    """Return the level of each of two codes in a byte, `[..., N] -> [..., 2 N]`."""
    if levels is None:
        levels = torch.tensor([*_E2M1, *(-level for level in _E2M1)])
    codes = codes.contiguous().view(torch.uint8)
    pair = (codes & 15, codes >> 4)
    return levels[torch.stack(pair[::-1] if high_first else pair, -1).flatten(-2).int()]
