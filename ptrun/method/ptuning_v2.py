"""P-tuning v2: learned keys and values in every layer, the backbone frozen, a linear head.

Liu et al. 2022, §3. As in the released code, real tokens are numbered from P on
(`shift_positions`), dropout acts on the prefix row by row, and a pooler stays frozen. The code
has no layer interval; here a layer outside it has no prefix at all, since an all-zero prefix
would still take softmax mass. Nor has it T5: there each half that has a part in the answer gets
prefixes of its own (`stacks`). On GLM the prefixes of the released code are hidden states that the
frozen maps of a layer make keys and values of (`prefix_kind`); the saved prompt has those, so that
it is the same whichever way it was learned. That code leaves attention's dropout out where there is
such a prefix; here it stays.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Prefix
from ptrun.backbone.dropout import drop
from ptrun.backbone.injection import Reader
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.projection import keys_values
from ptrun.errors import UserError
from ptrun.method.folded import Folded
from ptrun.prompt.prefix import DeepPrefix, PrefixKind, Reparameterization, Stack, places
from ptrun.readout.base import Batch
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_PREFIX_SITE = 1_000_000  # dropout site, beyond any site of a backbone

_KIND_OF: dict[str, PrefixKind] = {"infilling": "hidden"}
_READER: dict[Stack, Reader] = {"encoder": "text", "decoder": "decoder", "cross": "decoder"}
_SITE = {"encoder": "attention", "decoder": "attention", "cross": "cross"}

Prefixes = tuple[Prefix | None, ...]


class PTuningV2(Folded):
    """A deep prefix `[P, 2 n, heads, d]` for n layers, and a head.

    Args:
        backbone: the frozen encoder.
        task: what is answered.
        length: P, in vectors a layer; 0 is the bare backbone with a head.
        reparameterization: `embedding` learns the prefix itself; `mlp` makes it from a table.
        hidden: width of the MLP.
        prefix_kind: `kv` learns keys and values; `hidden` learns hidden states, `[P, n, H]`; null
            is `hidden` for blank infillers (GLM), else `kv`.
        shift_positions: number the text from P; false: from 0. Null is what the official runs do:
            true of keys and values, false of hidden states. Models with relative positions only,
            like T5, have no such numbers.
        dropout: of the prefix while training; null is the backbone's hidden dropout, and of hidden
            states none.
        layers: first and last layer with a prefix, counted from 1; null is all. Of each stack.
        stacks: of an encoder-decoder: which attentions have prefixes; null is both
            self-attentions, or the encoder's alone where the decoder has no part in the answer.
        reading: as in `ptrun.readout.reading.Reading`.

    Raises:
        UserError: the prompt leaves no room for text, the interval is not one of the model's, or a
            stack is not there or has no part in the answer.
    """

    finished, paper = "prompt.prefix", "P-tuning v2"

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        length: int,
        reparameterization: Reparameterization = "embedding",
        hidden: int = 512,
        prefix_kind: PrefixKind | None = None,
        shift_positions: bool | None = None,
        dropout: float | None = None,
        layers: list[int] | None = None,
        stacks: list[Stack] | None = None,
        **reading: Unpack[Reading],
    ):
        super().__init__(backbone, task, **reading)
        shape = backbone.shape
        if length < 0:
            raise UserError(f"method.length is {length}; use 0 (no prefix) or more.")
        if dropout is not None and not 0 <= dropout < 1:
            raise UserError(f"method.dropout is {dropout}; use 0 or more, and less than 1.")
        hides = (prefix_kind or _KIND_OF.get(backbone.family, "kv")) == "hidden"
        self.length = length
        self.shift_positions = not hides if shift_positions is None else shift_positions
        self.dropout = (0.0 if hides else shape.dropout) if dropout is None else dropout
        self.room()
        chosen = _stacks(backbone, stacks, decodes=self.readout.reads_decoder)
        self.depth = {s: shape.layers if s == "encoder" else shape.decoder_layers for s in chosen}
        self.places = places(self.depth, layers)
        self.prompt = DeepPrefix(
            length,
            len(self.places),
            shape.heads,
            shape.head_size,
            reparameterization,
            hidden,
            self._project if hides else None,
            shape.hidden_size,
        )

    @property
    def prompt_positions(self) -> int:
        """A prefix has no positions, but with `shift_positions` the text starts after P."""
        shifted = self.shift_positions and self.backbone.family != "seq2seq"
        return self.length if shifted else 0

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with a prefix for each layer of the interval."""
        given = super().inputs(batch)
        if self.length == 0:
            return given
        made, decoder = self._prefixes(batch), given.decoder
        if decoder is not None:
            own = {"prefixes": made.get("decoder"), "cross": made.get("cross")}
            decoder = replace(decoder, **own)  # type: ignore[arg-type]
        shift = torch.full_like(batch.ids[:, 0], self.prompt_positions)
        return replace(given, prefixes=made.get("encoder"), decoder=decoder, shift=shift)

    def _project(self, states: Tensor) -> Tensor:
        """Return the keys and values `[P, 2 n, heads, d]` of hidden states `[P, n, H]`."""
        sites = [(_READER[stack], (_SITE[stack], layer)) for stack, layer in self.places]
        return keys_values(self.backbone, sites, states)

    def _prefixes(self, batch: Batch) -> dict[Stack, Prefixes]:
        """Return one prefix a layer of each stack; None outside the interval."""
        made = self.prompt()
        rows = made.expand(len(batch), *made.shape).flatten(2)
        dropped = drop(rows, batch.keys, _PREFIX_SITE, self.dropout).view(len(batch), *made.shape)
        slices = dropped.permute(2, 0, 3, 1, 4).unbind()  # 2n of [B, heads, P, d]
        pairs = zip(self.places, slices[::2], slices[1::2], strict=True)
        own = {place: Prefix(key, value) for place, key, value in pairs}
        return {s: tuple(own.get((s, i)) for i in range(n)) for s, n in self.depth.items()}


def _stacks(
    backbone: PretrainedBackbone, stacks: Sequence[Stack] | None, *, decodes: bool
) -> Sequence[Stack]:
    """Return the stacks with prefixes; `decodes` says whether the decoder answers."""
    if backbone.family != "seq2seq":
        if stacks is not None:
            raise UserError(
                f"method.stacks is {stacks}, but {backbone.name} ({backbone.family}) has one "
                "stack; leave it null, or use an encoder-decoder."
            )
        return ["encoder"]
    if stacks is None:
        return ["encoder", "decoder"] if decodes else ["encoder"]
    if not stacks or len(set(stacks)) < len(stacks):
        raise UserError(f"method.stacks is {stacks}; name one or more of encoder, decoder, cross.")
    if not decodes and set(stacks) != {"encoder"}:
        raise UserError(
            f"method.stacks is {stacks}, but this read-out reads the encoder of {backbone.name} "
            "alone; use method.stacks=[encoder], or null."
        )
    return stacks
