"""P-tuning v2: learned keys and values in every layer, the backbone frozen, a linear head.

Liu et al. 2022, §3. As in the released code, the text's positions start at P (`shift_positions`),
dropout acts on the prefix row by row, and a pooler stays frozen.

Added to the released code:
- A layer interval. A layer outside it has no prefix at all, since an all-zero prefix would still
  take softmax mass.
- T5. Each half that the read-out uses gets its own prefixes (`stacks`).

On GLM the released code learns hidden states, which each layer's frozen maps turn into keys and
values (`prefix_kind`). The saved prompt holds keys and values for both kinds. That code has no
attention dropout with such a prefix; ptrun keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Prefix, Site
from ptrun.backbone.dropout import drop
from ptrun.backbone.injection import Reader, link_of
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Folded
from ptrun.prompt import DeepPrefix, PrefixKind, Project, Reparameterization, Stack, places
from ptrun.readout.base import Batch
from ptrun.readout.head import check_dropout

_PREFIX_SITE = 1_000_000  # dropout site, beyond any site of a backbone

_READER: dict[Stack, Reader] = {"encoder": "text", "decoder": "decoder", "cross": "decoder"}
_SITE = {"encoder": "attention", "decoder": "attention", "cross": "cross"}


class PTuningV2(Folded):
    """A deep prefix `[P, 2 n, heads, d]` for n layers, and a head.

    Args:
        length: P, in vectors a layer; 0 is the bare backbone with a head. Null is as many as
            `readout.document` has tokens.
        reparameterization: `embedding` learns the prefix itself; `mlp` computes it from a table.
        hidden: width of the MLP.
        prefix_kind: `kv` learns keys and values; `hidden` learns hidden states, `[P, n, H]`; null
            is `hidden` for blank infillers (GLM), else `kv`.
        shift_positions: start the text's positions at P instead of 0. Null follows the official
            runs: true for keys and values, false for hidden states. Models with relative positions
            only, like T5, ignore it.
        dropout: of the prefix in training; null is the backbone's hidden dropout for keys and
            values, 0 for hidden states.
        frozen_vectors: the number of first vectors that are not learned. A model puts much of its
            attention on its first token, so a start from a text keeps one
            (Eyuboglu et al. 2025); null is all.
        layers: first and last layer with a prefix, in each stack, counted from 1; null is all.
        stacks: the attentions of an encoder-decoder that have prefixes. Null is both
            self-attentions, or the encoder's if the read-out does not use the decoder.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning_v2", "method.length=5")
    >>> method.prompt().shape  # [P, 2 n, heads, d]
    torch.Size([5, 8, 4, 32])
    """

    static = True
    prefixes = True
    finished = "prompt.prefix"
    may_differ = ("length", "dropout", "reparameterization", "hidden", "frozen_vectors")

    def __init__(
        self,
        *run: Any,
        length: int | None,
        reparameterization: Reparameterization = "embedding",
        hidden: int = 512,
        prefix_kind: PrefixKind | None = None,
        shift_positions: bool | None = None,
        dropout: float | None = None,
        frozen_vectors: int | None = 0,
        layers: list[int] | None = None,
        stacks: list[Stack] | None = None,
    ):
        super().__init__(*run)
        shape = self.backbone.shape
        if length is None:
            document = getattr(self.readout, "document", None)
            if document is None:
                raise UserError("method.length=null needs readout=distillation; type a number.")
            length = len(document.ids)
        if length < 0:
            raise UserError(f"method.length is {length}; use 0 (no prefix) or more.")
        check_dropout("method", dropout)
        usual = "hidden" if self.backbone.architecture.has_blank else "kv"  # as in GLM's code
        hidden_states = (prefix_kind or usual) == "hidden"
        self.length = length
        self.shift_positions = not hidden_states if shift_positions is None else shift_positions
        default = 0.0 if hidden_states else shape.dropout
        self.dropout = default if dropout is None else dropout
        self.room()
        chosen = _stacks(self.backbone, stacks, decodes=self.readout.reads_decoder)
        self.depth = {s: shape.layers if s == "encoder" else shape.decoder_layers for s in chosen}
        self.places = places(self.depth, layers)
        self.sites = [(_READER[stack], (_SITE[stack], layer)) for stack, layer in self.places]
        project: Project | None = None
        if hidden_states:  # no method of this object: a cycle would keep the backbone in memory
            project = partial(keys_values, self.backbone, self.sites)
        self.prompt = DeepPrefix(
            length,
            len(self.places),
            shape.heads,
            shape.head_size,
            reparameterization,
            hidden,
            project,
            shape.hidden_size,
            length if frozen_vectors is None else frozen_vectors,
        )

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return `hidden` without an MLP."""
        return set() if node.get("reparameterization") == "mlp" else {"hidden"}

    @classmethod
    def unfit_for_context(cls, node: Mapping[str, Any], backbone: PretrainedBackbone) -> str | None:
        """Return why keys and values of a text cannot start this configuration, or None."""
        usual = "hidden" if backbone.architecture.has_blank else "kv"
        if node.get("reparameterization") == "mlp":
            return "computes its prefix. Type method.reparameterization=embedding."
        if (node.get("prefix_kind") or usual) == "hidden":
            return "learns hidden states here. Type method.prefix_kind=kv."
        if node.get("shift_positions") is False:
            return (
                "would put the text at the positions of the context. Leave "
                "method.shift_positions=false out."
            )
        return None

    def begin(self, ids: Sequence[int]) -> None:
        """Start from the keys and values that the backbone computes of `length` tokens."""
        self.prompt.begin(self.backbone.read(self.sites, ids))

    def join(self, runs: Sequence[tuple[Path, Mapping[str, Tensor]]]) -> None:
        """Start from the prefixes of several runs, one after another.

        The keys of each keep their own positions, from 0. Prefixes of other layers, or of another
        length together, are refused.
        """
        prefixes = [tensors[self.finished] for _, tensors in runs if self.finished in tensors]
        length, form = sum(map(len, prefixes)), self.prompt().shape[1:]
        if len(prefixes) < len(runs) or any(t.shape[1:] != form for t in prefixes):
            raise UserError("start=joined: give runs of ptuning_v2 or cartridge with these layers.")
        if length != self.length:
            raise UserError(
                f"start=joined: the prefixes have {length} vectors, and method.length is "
                f"{self.length}. Type method.length={length}."
            )
        self.prompt.begin(torch.cat(prefixes).to(self.prompt.table))

    @property
    def prompt_positions(self) -> int:
        """P with `shift_positions`, else 0: a prefix itself has no positions."""
        shifted = self.shift_positions and not self.backbone.architecture.relative
        return self.length if shifted else 0

    @property
    def positions_added(self) -> int:
        """P."""
        return self.length

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with a prefix for each layer of the interval."""
        text = super().inputs(batch)
        if self.length == 0:
            return text
        prompt = self.prompt()
        rows = prompt.expand(len(batch), *prompt.shape).flatten(2)
        dropped = drop(rows, batch.keys, _PREFIX_SITE, self.dropout).view(len(batch), *prompt.shape)
        dropped = dropped.to(self.backbone.model.get_input_embeddings().weight.dtype)
        slices = dropped.permute(2, 0, 3, 1, 4).unbind()  # 2n of [B, heads, P, d]
        pairs = zip(self.places, slices[::2], slices[1::2], strict=True)
        of = {place: Prefix(key, value) for place, key, value in pairs}  # none outside `layers`
        stacks = {s: tuple(of.get((s, i)) for i in range(n)) for s, n in self.depth.items()}
        decoder = text.decoder
        if decoder is not None:
            decoder = replace(decoder, prefixes=stacks.get("decoder"), cross=stacks.get("cross"))
        shift = torch.full_like(batch.ids[:, 0], self.prompt_positions)
        return replace(text, prefixes=stacks.get("encoder"), decoder=decoder, shift=shift)


def _stacks(
    backbone: PretrainedBackbone, stacks: Sequence[Stack] | None, *, decodes: bool
) -> Sequence[Stack]:
    """Return the stacks with prefixes; `decodes`: whether the read-out uses the decoder."""
    if not backbone.architecture.has_decoder:
        if stacks is not None:
            raise UserError(
                f"method.stacks is {stacks}, but {backbone.name} ({backbone.family}) has one "
                "stack; leave it null, or use an encoder-decoder."
            )
        return ["encoder"]
    if stacks is None:
        return ["encoder", "decoder"] if decodes else ["encoder"]
    read = get_args(Stack) if decodes else ("encoder",)
    if not stacks or len(set(stacks)) < len(stacks) or not set(stacks) <= set(read):
        raise UserError(
            f"method.stacks is {stacks}; name one or more of {', '.join(read)}, which this "
            f"read-out uses of {backbone.name}, or null."
        )
    return stacks


# Projects prefix vectors to keys and values with a layer's own frozen maps.
#
# GLM's prefixes (the prompt branch of its released code) are hidden states before the input of a
# layer's attention, after its norm. They have no query, position or output, so each equals one key
# and one value.

_HEADS = 1  # the axis of heads
_MAPS = (("key", "value"), ("k_proj", "v_proj"), ("k", "v"))


def keys_values(
    backbone: PretrainedBackbone, sites: Sequence[tuple[Reader, Site]], states: Tensor
) -> Tensor:
    """Return keys and values `[P, 2 n, heads, d]`, keys at even slices, from states `[P, n, H]`.

    `sites` are the n attentions. In a tensor-parallel group each rank gets all heads.
    """
    modules = [m for m in backbone.model.modules() if "ptrun_link" in vars(m)]
    attentions = {(link_of(m).reader, link_of(m).site): m for m in modules}
    dtype = backbone.model.get_input_embeddings().weight.dtype
    slices: list[Tensor] = []
    for site, vectors in zip(sites, states.to(dtype).unbind(dim=1), strict=True):
        for tensor in _projected(attentions[site], vectors, backbone):
            gathered = backbone.division.whole(tensor, _HEADS) if backbone.division else tensor
            slices.append(gathered.to(states.dtype))
    return torch.stack(slices, dim=1)


def _projected(module: Any, states: Tensor, backbone: PretrainedBackbone) -> tuple[Tensor, Tensor]:
    """Return keys and values `[P, heads, d]` from states `[P, H]`, for the heads of this rank."""
    if hasattr(module, "in_proj") or hasattr(module, "query_proj"):
        from ptrun.backbone import masked  # it imports transformers, which planning does not need

        _, key, value = masked.projected(module, states[None])
        return key[0].transpose(0, 1), value[0].transpose(0, 1)
    if hasattr(module, "c_attn"):
        _, key, value = module.c_attn(states[None])[0].chunk(3, dim=-1)
    else:
        names = next((pair for pair in _MAPS if hasattr(module, pair[0])), None)
        if names is None:
            raise UserError(
                "method.prefix_kind=hidden needs one map to keys and one to values in each layer, "
                "which this backbone does not have. Use method.prefix_kind=kv."
            )
        states = backbone.division.read(states) if backbone.division else states
        key, value = (getattr(module, name)(states) for name in names)
    width = backbone.shape.head_size
    key, value = (tensor.unflatten(-1, (-1, width)) for tensor in (key, value))
    return module.k_norm(key) if hasattr(module, "k_norm") else key, value
