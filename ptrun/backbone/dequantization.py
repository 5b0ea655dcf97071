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
        if ending is None or (part in ("blocks", "scales") and tensor.dtype != torch.uint8):
            plain[name] = tensor
        elif not UNUSED.search(name):
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
    """Joins codes and scales of a folder; `names` are those of the parts of one tensor."""

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

    def check(self, name: str, expected: str, right: bool) -> None:
        """Refuse a tensor whose shape or dtype does not fit the others."""
        if not right:
            tensor = self.tensors.get(name)
            is_ = "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"
            raise self.error(name, f"is {is_}, expected {expected}")

    def joined(self, codes: str, names: dict[str, str]) -> Dequantized:
        """Return the numbers that some codes and their scales stand for."""
        if names.keys() & {"blocks", "scales"}:
            join, needed = self._mxfp4, {p: f"{codes}_{p}" for p in ("blocks", "scales")}
        elif names.keys() & {"SCB", "weight_format"}:
            join, needed = self._rows, {"SCB": f"{codes.removesuffix('weight')}SCB"}
        elif names.keys() & {"scale", "zero_point"}:
            join, needed = self._scaled, {"scale": f"{codes}_scale"}
        else:
            join, needed = self._four_bits, {p: f"{codes}.{p}" for p in ("absmax", "quant_map")}
            needed["quant_state"] = f"{codes}.quant_state.bitsandbytes__nf4"
        names |= {} if join == self._mxfp4 else {"codes": codes}
        for part, name in (needed | names).items():
            if names.get(part) not in self.tensors:
                raise self.error(name, "is missing")
        parts = {part: self.tensors[name] for part, name in names.items()}
        shape, formula = join(names, parts)
        is_gpt2 = self.method == "bitsandbytes" and self.config["model_type"] == "gpt2"
        if is_gpt2 and _CONV1D.search(codes):  # quantized as `nn.Linear`, the other way round
            return Dequantized(parts, shape[::-1], self.dtype, lambda tensors: formula(tensors).T)
        return Dequantized(parts, shape, self.dtype, formula)

    def _four_bits(self, names: Mapping[str, str], parts: Parts) -> Any:
        try:
            facts = json.loads(bytes(parts.pop("quant_state")[...].tolist()))
            shape = facts["shape"] = torch.Size(facts["shape"])
            facts["dtype"] = _FLOATS[facts["dtype"]]
            needed = {"quant_map": 16, "absmax": -(-shape.numel() // facts["blocksize"])}
            if "nested_blocksize" in facts:
                blocks = -(-needed["absmax"] // facts["nested_blocksize"])
                needed |= {"nested_quant_map": 256, "nested_absmax": blocks}
                facts["nested_offset"] = float(facts["nested_offset"])
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise self.error(names["quant_state"], "is no state of bitsandbytes") from error
        codes, nbytes = parts["codes"], -(-shape.numel() // 2)
        right = codes.shape.numel() * codes.dtype.itemsize == nbytes
        self.check(names["codes"], f"{nbytes} bytes", right)
        for part, size in needed.items():
            right = part in parts and parts[part].shape.numel() == size
            self.check(f"{names['codes']}.{part}", f"{size} numbers", right)
        return shape, partial(_four_bits, facts)

    def _rows(self, names: Mapping[str, str], parts: Parts) -> Any:
        codes, layout = parts["codes"], parts.pop("weight_format", None)
        self.check(
            names["codes"], "int8 [N, K]", codes.dtype == torch.int8 and len(codes.shape) == 2
        )
        right = parts["SCB"].shape.numel() == codes.shape[0]
        self.check(names["SCB"], f"[{codes.shape[0]}]", right)
        if layout is not None:
            self.check(names["weight_format"], "0 (row)", not layout[...].any())
        return codes.shape, lambda p: p["codes"] * p["SCB"].view(-1, 1) * 7.874015718698502e-3

    def _mxfp4(self, names: Mapping[str, str], parts: Parts) -> Any:
        shape = parts["blocks"].shape
        right = len(shape) == 4 and shape[-1] == 16
        self.check(names["blocks"], "[experts, outputs, inputs / 32, 16]", right)
        right = parts["scales"].shape == shape[:-1]
        self.check(names["scales"], f"{list(shape[:-1])}", right)
        return torch.Size((shape[0], shape[2] * 32, shape[1])), _mxfp4

    def _scaled(self, names: Mapping[str, str], parts: Parts) -> Any:
        codes, scale = parts["codes"], tuple(parts["scale"].shape)
        self.check(names["codes"], "codes [N, K] or [E, N, K]", len(codes.shape) in (2, 3))
        *lead, rows, columns = codes.shape
        is_packed = self.method == "fp8" and codes.dtype not in _FP8  # two codes in a byte
        columns *= 1 + is_packed
        # 1. The grids of scales that config.json allows, each with the block of a scale
        blocks = [(1, 32)] if is_packed else self._blocks(rows, columns)
        grids = {(*lead, -(-rows // r), -(-columns // c)): (r, c) for r, c in blocks}
        # 2. The one of this scale: a scale of a whole matrix may lack axes
        allowed = {grid: grid for grid in grids}
        if (*lead, 1, 1) in grids:
            allowed |= {tuple(lead): (*lead, 1, 1)} | ({} if lead else {(1,): (1, 1)})
        expected = f"{' or '.join(str(list(shape)) for shape in allowed)} for {list(codes.shape)}"
        self.check(names["scale"], expected, scale in allowed)
        if "zero_point" in parts:
            right = tuple(parts["zero_point"].shape) == scale
            self.check(names["zero_point"], str(list(scale)), right)
        # 3. compressed-tensors multiplies in the dtype of the scales, except for fp8 experts
        is_other = self.method == "compressed-tensors"
        is_other &= not (codes.dtype in _FP8 and _EXPERT.search(names["codes"]))
        dtype = parts["scale"].dtype if is_other else torch.float32
        self.check(names["scale"], "floats", dtype in _FLOATS.values())
        grid = allowed[scale]
        shape = torch.Size((*lead, rows, columns))
        return shape, partial(_scaled, grid, grids[grid], dtype, is_packed)

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


def _mxfp4(parts: dict[str, Tensor]) -> Tensor:
    """Return `[E, inputs, outputs]` from blocks of 32 codes that share an exponent."""
    numbers = torch.ldexp(_levels(parts["blocks"]), parts["scales"].int()[..., None] - 127)
    return numbers.flatten(-2).transpose(1, 2).contiguous()


def _scaled(
    grid: tuple[int, ...],
    block: tuple[int, int],
    dtype: torch.dtype,
    is_packed: bool,
    parts: dict[str, Tensor],
) -> Tensor:
    """Return codes minus their zero, times the scale of their block."""
    codes, scale = parts["codes"], parts["scale"]
    numbers = (_levels(codes) if is_packed else codes).to(dtype)
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
