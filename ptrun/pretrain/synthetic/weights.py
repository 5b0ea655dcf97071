"""Random weights: the tensors of a configuration, and the initial values of each.

Standard deviations are those of the architecture's initialization. A value is a scaled sum of four
random bytes: it is nearly normal, and integers with one rounding give the same bits on every
machine. torch's normal numbers depend on the instructions of the processor.
"""

import hashlib
from math import sqrt
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ptrun.backbone.family import Family
from ptrun.backbone.library import model_class
from ptrun.converting.writing import Entry

_BYTES = 4  # per weight
_MEAN, _VARIANCE = _BYTES * 255 / 2, _BYTES * (256**2 - 1) / 12
_CHUNK = 2**22  # weights drawn at once; even
_T5 = ("t5", "mt5")
_WHOLE = {"bert": "BertForPreTraining", "albert": "AlbertForPreTraining"}
"""Classes with all tensors of a published checkpoint, including the pooler."""


def empty_model(family: Family, config: Any) -> Any:
    """Return a model without weights; T5 v1.1 gets an untied output matrix."""
    import transformers

    with torch.device("meta"):
        whole = _WHOLE.get(config.model_type)
        model = (getattr(transformers, whole) if whole else model_class(family))(config)
        if config.model_type in _T5 and not getattr(config, "scale_decoder_outputs", False):
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def draw(entry: Entry, config: Any, seed: int) -> Tensor:
    """Return the initial values of a tensor; vectors are biases or norms."""
    if len(entry.shape) == 1:
        return torch.full(entry.shape, float(not entry.name.endswith("bias")), dtype=entry.dtype)
    tensor = torch.empty(entry.shape, dtype=entry.dtype)
    scale = numpy.float32(deviation(entry.name, config) / sqrt(_VARIANCE))
    bits = _stream(entry.name, seed)
    flat = tensor.view(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        part.copy_(torch.from_numpy(_sums(bits, part.numel()) * scale))
    return tensor


def deviation(name: str, config: Any) -> float:
    """Return the initial standard deviation of a matrix."""
    if config.model_type in _T5:
        return _t5_deviation(name, config)
    std: float = getattr(config, "initializer_range", None) or config.init_std
    if config.model_type in ("gpt2", "blocklm") and name.endswith("c_proj.weight"):
        return std / sqrt(2 * config.n_layer)  # its output is added to the residual stream
    return std


def _t5_deviation(name: str, config: Any) -> float:
    """Return T5's: activations keep their size without a division in the attention.

    It also applies to an untied output matrix, for which transformers gives logits in the hundreds.
    """
    inner = config.num_heads * config.d_kv
    rows = {"q": config.d_model * config.d_kv, "o": inner, "wo": config.d_ff, "shared": 1}
    part = name.removesuffix(".weight").rpartition(".")[2]
    return float(config.initializer_factor / sqrt(rows.get(part, config.d_model)))


def _stream(name: str, seed: int) -> numpy.random.SFC64:
    """Return the random bits of one tensor, independent of earlier draws."""
    digest = hashlib.sha256(name.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 16, 4)]
    return numpy.random.SFC64(numpy.random.SeedSequence([seed, *words]))


def _sums(bits: numpy.random.SFC64, count: int) -> Any:
    """Return `count` sums of random bytes around their mean, exact in fp32."""
    even = count + count % 2
    raw = bits.random_raw(even * _BYTES // 8).astype("<u8", copy=False).view(numpy.uint8)
    first, *others = raw.reshape(_BYTES, even)
    total = first.astype(numpy.int16)
    for plane in others:
        total += plane
    return total[:count].astype(numpy.float32) - numpy.float32(_MEAN)
