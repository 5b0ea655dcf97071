"""Where a method puts its vectors, read from the objects that a run builds.

The method is built on a small shipped backbone and given one example. What it hands to the backbone
is then examined: which embeddings depend on a learned parameter, which layers have a prefix, at
which positions an edit changes the hidden states, and which positions are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, DecoderInput, Edit, Prefix, Site
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.base import Method, built, check_pair
from ptrun.readout.base import Batch, collate
from ptrun.types import Example

torch.set_num_threads(1)  # the tensors are tiny

BACKBONES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5", "pocket_glm")
_TEXT = "The film was not dull."


@dataclass(frozen=True)
class Stack:
    """One stack of layers and what is put into it.

    Args:
        tokens: what stands at each position; a learned vector is an empty text.
        learned: positions whose embedding is learned.
        prefixes: by name (`self`, `cross`), the number of prefix vectors of each layer.
        edited: by layer, the positions whose hidden state is edited.
        inside: by layer, the number of edits inside it (adapters), on all positions.
        maps: by layer, whether linear maps of it are changed (LoRA).
        tuned: whether its own weights are trained.
        read: positions that the read-out reads.
    """

    tokens: Sequence[str]
    learned: Sequence[int]
    prefixes: Mapping[str, Sequence[int]]
    edited: Sequence[Sequence[int]]
    inside: Sequence[int]
    maps: Sequence[bool]
    tuned: bool
    read: Sequence[int]

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.edited)


@dataclass(frozen=True)
class Placement:
    """What a method does to a backbone; `decoder` is None if the backbone has or uses none."""

    family: str
    text: Stack
    decoder: Stack | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


@cache
def placement(backbone: str, *overrides: str) -> Placement | str:
    """Return where a configuration puts its vectors, or why it is rejected."""
    made = compose_run([f"backbone={backbone}", "task=pocket_sentiment", *overrides])
    components = made.components()
    own: PretrainedBackbone = components["backbone"].build()
    task = components["task"].build(None, None)
    try:
        check_pair(components["method"].target, *made.readout, own, task)
        torch.manual_seed(1)
        own.load()
        method = built(components["method"], made.readout, own, task)
    except UserError as error:
        return str(error).splitlines()[0]
    method.placed()
    return _examined(method, own)


def _examined(method: Method, own: PretrainedBackbone) -> Placement:
    example = Example("1", {"sentence": _TEXT}, "negative")
    batch = collate(method.encode([example])[0:1], None, torch.device("cpu"))
    if unprepared := method.unprepared(batch.features, training=False):
        method.prepare(collate(unprepared, None, torch.device("cpu")))
    given = method.inputs(batch)
    names = [name for name, _ in own.model.named_modules() if "lora_A" in name]
    names += [path for updates in given.updates for path in updates.maps]
    text = _stack(method, own, given, batch.ids, own.shape.layers, names)
    decoder = _decoder(method, own, given.decoder, batch, names) if given.decoder else None
    at = [int(column) for where in given.requested for column in where.columns]
    if decoder is None:
        text = replace(text, read=_first_row(given, at))
    elif own.family == "infilling":  # the answer is written behind the text, in the same layers
        read = [len(text.tokens) + column for column in _first_row(given, at)]
        text = replace(text, tokens=[*text.tokens, *decoder.tokens], read=read)
        decoder = None
    else:
        decoder = replace(decoder, read=_first_row(given, at))
    return Placement(own.family, text, decoder, method.learned_parameters())


def _first_row(given: BackboneInput, columns: Iterable[int]) -> list[int]:
    rows = [int(row) for where in given.requested for row in where.rows]
    return sorted({c for c, row in zip(columns, rows, strict=True) if row == 0})


def _decoder(
    method: Method, own: PretrainedBackbone, given: DecoderInput, batch: Batch, names: list[str]
) -> Stack:
    assert batch.decoder is not None
    layers = own.shape.decoder_layers
    found = _stack(method, own, given, batch.decoder, layers, names, decoder=True)
    cross = [0 if p is None else _length(p) for p in given.cross or [None] * layers]
    return replace(found, prefixes={**found.prefixes, "cross": cross})


def _stack(
    method: Method,
    own: PretrainedBackbone,
    given: BackboneInput | DecoderInput,
    ids: Tensor,
    layers: int,
    names: list[str],
    *,
    decoder: bool = False,
) -> Stack:
    learned = [] if given.embeddings is None else _depends(method, given.embeddings[0])
    width = given.mask.shape[1]
    edits: Mapping[Site, Edit] = given.edits or {}
    prefixes = [0 if p is None else _length(p) for p in given.prefixes or [None] * layers]
    return Stack(
        tokens=_tokens(own, ids[0].tolist(), learned, width),
        learned=learned,
        prefixes={"self": prefixes},
        edited=[_edited(edits.get(("layer", n)), given, own) for n in range(layers)],
        inside=[sum((at, n) in edits for at in ("attention", "ffn")) for n in range(layers)],
        maps=[_has_maps(own, names, n, decoder=decoder) for n in range(layers)],
        tuned=any(name.startswith("backbone.") for name in method.learned()),
        read=[],
    )


def _length(prefix: Prefix) -> int:
    return prefix.key.shape[2]


def _depends(method: Method, rows: Tensor) -> list[int]:
    """Return the positions of `[T, E]` that depend on a parameter of the prompt."""
    own = [p for n, p in method.learned().items() if not n.startswith(("readout.", "backbone."))]
    if not own or not rows.requires_grad:
        return []
    return [t for t in range(len(rows)) if _moves(rows[t], own)]


def _moves(vector: Tensor, parameters: Sequence[Tensor]) -> bool:
    weights = torch.linspace(1, 2, vector.numel())
    total = (vector * weights).sum()
    found = torch.autograd.grad(total, list(parameters), retain_graph=True, allow_unused=True)
    return any(gradient is not None and bool(gradient.abs().sum() > 0) for gradient in found)


def _edited(
    edit: Edit | None, given: BackboneInput | DecoderInput, own: PretrainedBackbone
) -> list[int]:
    """Return the positions at which an edit changes random hidden states."""
    if edit is None:
        return []
    hidden = torch.randn(len(given.mask), given.mask.shape[1], own.shape.hidden_size)
    changed = (edit(hidden) - hidden).abs().sum(-1)[0]
    return [t for t, difference in enumerate(changed.tolist()) if difference > 0]


def _has_maps(own: PretrainedBackbone, names: Sequence[str], layer: int, *, decoder: bool) -> bool:
    """Return whether a layer has one of the changed maps, by their paths."""
    half = {True: "decoder.", False: "encoder."}[decoder] if own.family == "seq2seq" else ""
    return any(f".{layer}." in n and n.startswith(half) for n in names)


def _tokens(
    own: PretrainedBackbone, ids: Sequence[int], learned: Sequence[int], width: int
) -> list[str]:
    """Return the token at each position; where vectors were inserted, an empty text."""
    words: list[Any] = own.tokenizer().convert_ids_to_tokens(list(ids))
    plain = [word.replace("Ġ", "").replace("▁", "") or "_" for word in map(str, words)]
    if len(ids) == width:  # vectors replace placeholders
        return ["" if t in learned else plain[t] for t in range(width)]
    rest = iter(plain)
    return ["" if t in learned else next(rest, "") for t in range(width)]
