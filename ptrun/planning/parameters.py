"""How many parameters a run holds and learns, by part, from sizes alone."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ptrun.method.base import Method

_IN_A_LAYER = re.compile(r"\.\d+\.")
_OWN_OUTPUT = "lm_head.weight"


@dataclass(frozen=True)
class Parameters:
    """Counts of one run.

    Args:
        learned: by part, as a result tells them, and `total`.
        total: by part, frozen ones too; the backbone's is its published size.
        held: numbers of the backbone in memory, output head and pooler included.
        divided: those of them that model parallelism divides.
        learned_divided: those of both.
        largest: numbers of the largest learned tensor.
        exported: bytes of what suffices to answer with.
        tunes: whether the backbone is learned.
        frozen_beside: numbers of method and head that are not learned.
    """

    learned: Mapping[str, int]
    total: Mapping[str, int]
    held: int
    divided: int
    learned_divided: int
    largest: int
    exported: int
    tunes: bool
    frozen_beside: int


def count(method: Method) -> Parameters:
    """Return the counts of a method on its backbone; both may be on the meta device."""
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
        divided=sum(split.values()),
        learned_divided=sum(split.get(id(p), 0) for p in learned.values()),
        largest=max((p.numel() for p in learned.values()), default=0),
        exported=sum(t.numel() * t.element_size() for t in method.exported().values()),
        tunes=method.tunes_backbone,
        frozen_beside=beside,
    )


def _divided(name: str, parameter: nn.Parameter) -> bool:
    """Return whether model parallelism divides it: the matrices of layers, an output of its own.

    Embeddings, norms and the table of relative positions are whole on every rank.
    """
    layer = _IN_A_LAYER.search(name) and parameter.dim() == 2 and "relative" not in name
    return bool(layer) or name == _OWN_OUTPUT
