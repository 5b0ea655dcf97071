"""Random weights of a full shape: what tensors a configuration has, and how each one begins.

Deviations are those of the architecture's own initialization. Values are a scaled sum of four
random bytes: nearly normal, and made with whole numbers and one rounding, so that every machine
gets the same bits; the normal numbers of torch follow the instructions a processor has.
"""

import hashlib
from math import sqrt
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ptrun.backbone.family import Family
from ptrun.backbone.library import model_class
from ptrun.importing.writing import Entry

_BYTES = 4  # per weight
_MEAN, _VARIANCE = _BYTES * 255 / 2, _BYTES * (256**2 - 1) / 12
_CHUNK = 2**22  # weights that are drawn at once; even
_T5 = ("t5", "mt5")
_WHOLE = {"bert": "BertForPreTraining", "albert": "AlbertForPreTraining"}
"""Classes that have all a published checkpoint holds, the pooler too."""


def empty_model(family: Family, config: Any) -> Any:
    """Return a model without weights; of T5 v1.1 with an output matrix of its own."""
    import transformers

    with torch.device("meta"):
        whole = _WHOLE.get(config.model_type)
        model = (getattr(transformers, whole) if whole else model_class(family))(config)
        if config.model_type in _T5 and not _scales(config):
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
    return model


def _scales(config: Any) -> bool:
    """Return whether states are scaled before a tied output matrix, as in the first T5."""
    return bool(getattr(config, "scale_decoder_outputs", False))


def entries(model: Any, dtype: torch.dtype) -> list[Entry]:
    """Return the tensors a model folder holds; tied ones once."""
    return [Entry(name, tuple(p.shape), dtype) for name, p in model.named_parameters()]


def draw(entry: Entry, config: Any, seed: int) -> Tensor:
    """Return a tensor as training would begin with it; vectors are biases, or norms."""
    if len(entry.shape) == 1:
        return torch.full(entry.shape, float(not entry.name.endswith("bias")), dtype=entry.dtype)
    made = torch.empty(entry.shape, dtype=entry.dtype)
    scale = numpy.float32(deviation(entry.name, config) / sqrt(_VARIANCE))
    bits = _stream(entry.name, seed)
    flat = made.view(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        part.copy_(torch.from_numpy(_sums(bits, part.numel()) * scale))
    return made


def deviation(name: str, config: Any) -> float:
    """Return the standard deviation of a matrix where training begins."""
    if config.model_type in _T5:
        return _t5_deviation(name, config)
    own: float = getattr(config, "initializer_range", None) or config.init_std
    if config.model_type in ("gpt2", "blocklm") and name.endswith("c_proj.weight"):
        return own / sqrt(2 * config.n_layer)  # what is added to the sum over layers
    return own


def _t5_deviation(name: str, config: Any) -> float:
    """Return T5's: activations keep their size without a division in the attention.

    An output matrix of its own gets one too (transformers draws it so large that logits are in
    the hundreds).
    """
    inner = config.num_heads * config.d_kv
    rows = {"q": config.d_model * config.d_kv, "o": inner, "wo": config.d_ff, "shared": 1}
    part = name.removesuffix(".weight").rpartition(".")[2]
    own: float = config.initializer_factor / sqrt(rows.get(part, config.d_model))
    return own


def _stream(name: str, seed: int) -> numpy.random.SFC64:
    """Return the random bits of one tensor, whatever is drawn before it."""
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
