"""The total and learned parameters of a run, by part, from sizes alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ptrun.backbone.maps.linear import linear_maps
from ptrun.method.base import Method

_IN_A_LAYER = re.compile(r"\.\d+\.")
_UNTIED_OUTPUT = "lm_head.weight"


@dataclass(frozen=True)
class Parameters:
    """Counts of one run.

    Args:
        learned: learned parameters by part as in a result, and `total`.
        total: all parameters by part; the backbone's is its published size.
        held: numbers of the backbone in memory, with output head and pooler.
        quantizable: the held numbers of the linear maps of the layers.
        divided: the held numbers that model parallelism divides.
        learned_divided: the divided numbers that are learned.
        largest: numbers of the largest learned tensor.
        exported: bytes of the tensors that prediction needs.
        tunes: whether the backbone is learned.
        frozen_beside: frozen numbers of method and head.
    """

    learned: Mapping[str, int]
    total: Mapping[str, int]
    held: int
    quantizable: int
    divided: int
    learned_divided: int
    largest: int
    exported: int
    tunes: bool
    frozen_beside: int


def count(method: Method) -> Parameters:
    """Return the counts of a method and its backbone, which may be on the meta device."""
    backbone, learned = method.backbone, method.learned()
    counts = method.learned_parameters()
    named = {name: p for name, p in backbone.model.named_parameters() if "adapter" not in name}
    split = {id(p): p.numel() for name, p in named.items() if _divided(name, p)}
    beside = sum(b.numel() for b in method.buffers())
    return Parameters(
        learned=counts,
        total={
            "prompt": counts["prompt"] + beside,
            "head": counts["head"],
            "backbone": backbone.size(),
        },
        held=sum({id(p): p.numel() for p in named.values()}.values()),
        quantizable=sum(
            {id(m.weight): m.weight.numel() for m in linear_maps(backbone).values()}.values()
        ),
        divided=sum(split.values()),
        learned_divided=sum(split.get(id(p), 0) for p in learned.values()),
        largest=max((p.numel() for p in learned.values()), default=0),
        exported=sum(t.numel() * t.element_size() for t in method.exported().values()),
        tunes=method.tunes_backbone,
        frozen_beside=beside,
    )


def _divided(name: str, parameter: nn.Parameter) -> bool:
    """Return whether model parallelism divides a parameter: matrices of layers, an untied output.

    Embeddings, norms and the table of relative positions are whole on every rank.
    """
    layer = _IN_A_LAYER.search(name) and parameter.dim() == 2 and "relative" not in name
    return bool(layer) or name == _UNTIED_OUTPUT
