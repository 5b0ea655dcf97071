"""Plain numbers from weights that are quantized in their files, one tensor at a time.

The formulas are those of transformers' quantizers (5.23) and of bitsandbytes, and give the same
bits. Names and dtypes of the tensors say which are codes, so no list of modules is read.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.files import quantized_by, read_config, unquantized
from ptrun.errors import UserError

UNUSED = re.compile(
    r"(input|output|activation)_(scale(_ub)?|zero_point)$|qscale_act$|\.[qkv]_scale$"
)
"""Names of the scales of activations, and of cached keys and values."""
_SCALE = re.compile(
    r"(absmax|quant_map|quant_state\.\w+|\.SCB|\.weight_format|\.qscale_weight|\.scale|"
    r"_(scale|scale_inv|scales|zero_point))$"
)
_OF_A_NORM = re.compile(r"(?<!\.weight)_scales?$|\.scale$")
"""Names of scales that plain models have too."""
_UNREAD = re.compile(r"\.(weight_(packed|g_idx|global_scale|scale_2)|qweight|qzeros)$")
_FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_CODES = (*_FP8, torch.int8, torch.uint8, torch.int32)
_CONV1D = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")
_EXPERT = re.compile(r"\.experts\.\d+\.")
Parts = Mapping[str, Any]  # codes and scales: tensors, or what `[...]` reads as one


@dataclass(frozen=True)
class Dequantized:
    """A tensor of plain numbers, computed from its codes and scales when it is indexed.

    >>> import torch
    >>> from ptrun.backbone.dequantization import Dequantized
    >>> parts = {"codes": torch.tensor([[2, 4]]), "scale": torch.tensor(0.5)}
    >>> times = lambda tensors: tensors["codes"] * tensors["scale"]
    >>> Dequantized(parts, torch.Size([1, 2]), times, torch.float32)[0]
    tensor([1., 2.])
    """

    parts: Parts
    shape: torch.Size
    formula: Callable[[dict[str, Tensor]], Tensor]
    dtype: torch.dtype  # that of config.json, for a file of plain numbers

    def __getitem__(self, index: Any) -> Tensor:
        return self.formula({name: part[...] for name, part in self.parts.items()})[index]

    def get_shape(self) -> list[int]:
        """Return the shape, as a slice of safetensors does."""
        return list(self.shape)


def dequantized(tensors: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the tensors of a folder with codes and scales joined; refuse what does not fit.

    `tensors` have a `shape`, a `dtype`, and their numbers at `[...]`.
    """
    joiner, numbers = _Joiner(tensors, folder), dict[str, Any]()
    # 1. Codes
    for name, tensor in tensors.items():
        if _UNREAD.search(name):
            raise joiner.error(name, "is of a format that ptrun does not read", advice=True)
        kinds = _CODES if joiner.method or name.endswith(".weight") else _FP8
        is_code = tensor.dtype in kinds and not name.endswith(".bias")
        if is_code and not joiner.method:
            raise joiner.error(
                name, f"is {tensor.dtype}, and config.json has no quantization_config"
            )
        if f"{name}.absmax" in tensors or (is_code and not _SCALE.search(name)):
            numbers[name.removesuffix("_blocks")] = joiner.joined(name)
    # 2. All others
    for name, tensor in tensors.items():
        if name in joiner.read or (joiner.method and UNUSED.search(name)):
            continue
        may_be_plain = _OF_A_NORM.search(name) and tensor.dtype.is_floating_point
        if joiner.method and _SCALE.search(name) and not may_be_plain:
            raise joiner.error(name, "is a scale, and its codes are missing")
        numbers[name] = tensor
    return numbers


class _Joiner:
    """Joins codes and scales of a folder, and refuses those that do not fit."""

    def __init__(self, tensors: Mapping[str, Any], folder: Path):
        self.tensors, self.folder, self.config = tensors, folder, read_config(folder)
        self.method = quantized_by(self.config)
        self.settings = self.config.get("quantization_config") or {}
        self.read = set[str]()  # the names of codes and scales

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
        if tensor.dtype not in _CODES[:4] and not tensor.dtype.is_floating_point:
            raise self.error(name, f"is {tensor.dtype}, expected 8 bits or floating-point numbers")
        self.read.add(name)
        return tensor

    def joined(self, codes: str) -> Dequantized:
        """Return the numbers that codes stand for."""
        is_int8 = self.tensors[codes].dtype == torch.int8
        if codes.endswith("_blocks"):
            parts, shape, formula = self._mxfp4(codes)
        elif self.method == "bitsandbytes":
            parts, shape, formula = (self._rows if is_int8 else self._four_bits)(codes)
        else:
            parts, shape, formula = self._scaled(codes)
        stated = str(self.config.get("dtype") or self.config.get("torch_dtype"))
        dtype = _FLOATS.get(stated, torch.bfloat16)
        is_gpt2 = self.method == "bitsandbytes" and self.config["model_type"] == "gpt2"
        if is_gpt2 and _CONV1D.search(codes):  # quantized as `nn.Linear`, the other way round
            return Dequantized(parts, shape[::-1], lambda tensors: formula(tensors).T, dtype)
        return Dequantized(parts, shape, formula, dtype)

    def _four_bits(self, codes: str) -> Any:
        kinds = [f"{codes}.quant_state.bitsandbytes__{kind}" for kind in ("fp4", "nf4")]
        state = next((name for name in kinds if name in self.tensors), kinds[-1])
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
        numbers_per_item = 2 * self.tensors[codes].dtype.itemsize
        parts["codes"] = self.part(codes, -(-shape.numel() // numbers_per_item))
        return parts, shape, partial(_four_bits, facts)

    def _rows(self, codes: str) -> Any:
        stem, numbers = codes.removesuffix("weight"), self.part(codes)
        parts = {"codes": numbers, "scale": self.part(f"{stem}SCB", numbers.shape[0])}
        if f"{stem}weight_format" in self.tensors and self.part(f"{stem}weight_format")[...].any():
            raise self.error(f"{stem}weight_format", "is a layout for GPUs, expected 0 (row)")
        return parts, numbers.shape, _rows

    def _mxfp4(self, name: str) -> Any:
        blocks = self.part(name)
        if len(blocks.shape) != 4 or blocks.shape[3] != 16:
            expected = "expected [experts, outputs, inputs / 32, 16]"
            raise self.error(name, f"is {list(blocks.shape)}, {expected}")
        experts, outputs, groups, _ = blocks.shape
        scales = self.part(name.removesuffix("blocks") + "scales", (experts, outputs, groups))
        shape = torch.Size((experts, groups * 32, outputs))
        return {"blocks": blocks, "scales": scales}, shape, _mxfp4

    def _scaled(self, codes: str) -> Any:
        tensor, stem = self.part(codes), codes.removesuffix("weight")
        in_place = self.method == "compressed-tensors"
        if len(tensor.shape) not in (2, 3) or tensor.dtype not in _CODES[: 3 if in_place else 2]:
            problem = f"is {tensor.dtype} {list(tensor.shape)}, which ptrun does not read"
            raise self.error(codes, problem, advice=True)
        names = [f"{codes}_scale_inv", f"{stem}scale", f"{stem}qscale_weight", f"{codes}_scale"]
        name = next((name for name in names if name in self.tensors), names[-1])
        # 1. The shapes of scales that config.json allows, each with its grid and blocks
        *lead, rows, columns = tensor.shape
        grids = dict[int | tuple[int, ...], Any]()
        for r, c in self._blocks(rows, columns):
            grid = (*lead, -(-rows // r), -(-columns // c))
            grids[grid] = grid, (r, c)
            if (r, c) == (rows, columns):  # a scale of a whole matrix may lack axes
                grids |= {tuple(lead): grids[grid]} | ({} if lead else {(1,): grids[grid]})
        parts = {"codes": tensor, "scale": self.part(name, *grids)}
        size, dtype = tuple(parts["scale"].shape), parts["scale"].dtype
        if f"{codes}_zero_point" in self.tensors:
            parts["zero_point"] = self.part(f"{codes}_zero_point", size)
        # 2. compressed-tensors multiplies in the dtype of the scales, except for fp8 experts
        if not in_place or (tensor.dtype in _FP8 and _EXPERT.search(codes)):
            dtype = torch.float32
        elif dtype not in _FLOATS.values():
            raise self.error(name, f"is {dtype}, expected {', '.join(_FLOATS)}")
        grid, block = grids[size]
        return parts, tensor.shape, partial(_scaled, grid, block, dtype)

    def _blocks(self, rows: int, columns: int) -> list[tuple[int, int]]:
        """Return the sizes of the blocks that may share a scale, as config.json states them."""
        row, whole = (1, columns), (rows, columns)
        groups = (self.settings.get("config_groups") or {}).values()
        if self.method == "fbgemm_fp8":
            return [row]
        sizes = [size] if (size := self.settings.get("weight_block_size")) else []
        for weights in filter(None, (group.get("weights") for group in groups)):
            forms = {"channel": row, "tensor": whole, "block": weights.get("block_structure")}
            forms["group"] = (1, weights.get("group_size"))
            sizes.append(forms.get(str(weights.get("strategy"))) or weights.get("strategy"))
        for size in sizes:
            if len(size) != 2 or not all(type(n) is int and n > 0 for n in size):
                place = f"{self.folder / 'config.json'}: quantization_config"
                raise UserError(f"{place} has blocks of {size}, expected such as [128, 128].")
        if self.method == "fp8" and "weight_block_size" not in self.settings:
            return [row, whole, (128, 128)]
        return [(r, c) for r, c in sizes] or ([whole] if self.method == "fp8" else [row, whole])


# The formulas


def _four_bits(facts: Mapping[str, Any], parts: dict[str, Tensor]) -> Tensor:
    """Return levels times the largest number of their block, which may be quantized too."""
    parts = {name: part.flatten() for name, part in parts.items()}
    absmax, codes = parts["absmax"], parts["codes"].view(torch.uint8)
    if "nested_absmax" in parts:
        spread = parts["nested_absmax"].repeat_interleave(facts["nested_blocksize"])[: len(absmax)]
        absmax = parts["nested_quant_map"][absmax.int()] * spread + facts["nested_offset"]
    levels = parts["quant_map"][torch.stack((codes >> 4, codes & 15), dim=1).flatten().int()]
    spread, count = absmax.repeat_interleave(facts["blocksize"]), facts["shape"].numel()
    return (levels[:count] * spread[:count]).view(facts["shape"]).to(facts["dtype"])


def _rows(parts: dict[str, Tensor]) -> Tensor:
    """Return a 127th of codes times the largest number of their row."""
    return parts["codes"] * parts["scale"].view(-1, 1) * 7.874015718698502e-3


def _mxfp4(parts: dict[str, Tensor]) -> Tensor:
    """Return `[E, inputs, outputs]` from blocks of 32 codes that share an exponent."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    numbers: Tensor = convert_moe_packed_tensors(**parts, dtype=torch.float32)
    return numbers


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
