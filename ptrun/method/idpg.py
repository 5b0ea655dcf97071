"""IDPG: every instance gets prompt vectors of its own from a small generator, the backbone frozen.

Wu et al. 2022. The input prompt is made from M(x), the [CLS] state of a pass of the frozen backbone
over the bare text, and joins the raw word embeddings; positions are counted over text and prompt.
With `deep` (M-IDPG) the hidden states at the prompt's places get a prompt added, not put in their
place, after every layer but the last, which the answer could not see. Here too the tables' additive
P-tuning v2 (`generator=none`), and with `deep=false` their prompt tuning.

As in the released code, the [CLS] states that layers' generators read have no dropout. Departs from
it: the pass over the bare text has none in training either, so that M(x) is computed once for each
example and every epoch after the first saves a pass (`instance_dropout=true` is as released, draws
of its own in every step); before the linear head there is the backbone's dropout, there none. On
models with segments a prompt is of the segment of the token before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, get_args

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Edit, Site
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.method.instance import FrozenPass, MeanOfWords
from ptrun.prompt.generator import Form, Generators, Kind, Sharing
from ptrun.prompt.glove import glove as glove_file
from ptrun.prompt.insertion import Insertion, Place, insert, place
from ptrun.readout.base import Batch, Features
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

Source = Literal["previous", "first"]

_SITE = 1_100_000  # dropout sites from here on, beyond any site of a backbone


class IDPG(Method):
    """Generated prompts `[B, t, H]` at the input and after layers, and a read-out.

    Args:
        backbone: the frozen encoder.
        task: what is answered.
        length: t, in vectors; 0 is the bare backbone with a head.
        sharing: between layers: S all, M all but a bias a layer, L nothing.
        deep: prompts after layers too (M-IDPG), not at the input alone (S-IDPG).
        generator: `phm`, `dense`, or `none`: biases alone.
        hidden: m, the generator's width; 0: one map, E = W z + b.
        order: n of `phm`: any divisor of the widths it maps between.
        shared_mixing: `phm`: one A for both maps of a generator.
        source: what layers' prompts are made from: the [CLS] state there (`previous`), or M(x).
        glove: a local file of word vectors; M(x) is then the average over the text's words, in
            place of the pass. Null: the pass.
        instance_dropout: whether the pass for M(x) has dropout in training.
        position: where the prompt stands, `ptrun.prompt.insertion.Place`.
        dropout: of M(x) and of hidden units, in training.
        reading: as in `ptrun.readout.reading.Reading`.

    Raises:
        UserError: a value is out of range, or the prompt leaves no room for text.
    """

    families = ("masked",)

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        length: int = 5,
        sharing: Sharing = "M",
        deep: bool = True,
        generator: Kind = "phm",
        hidden: int = 16,
        order: int = 16,
        shared_mixing: bool = False,
        source: Source = "previous",
        glove: str | None = None,
        instance_dropout: bool = False,
        position: Place = 0,
        dropout: float = 0.1,
        **reading: Unpack[Reading],
    ):
        super().__init__(backbone, task, **reading)
        _check(length, position, dropout)
        _check_glove(glove, source if deep else "first")
        self.length, self.source, self.dropout = length, source, dropout
        self.position: Place = position
        self.room()
        shape = backbone.shape
        layers = shape.layers - 1 if deep else 0
        widths = [shape.embedding_size, *[shape.hidden_size] * layers]
        form = Form(generator, hidden, order, shared_mixing)
        self.encoder: FrozenPass | MeanOfWords
        if glove is None:
            self.encoder = FrozenPass(backbone, dropout=instance_dropout)
        else:
            self.encoder = MeanOfWords(backbone, glove)
        self.prompt = Generators(widths, self.encoder.width, length, sharing, form)
        self.layers = layers

    @classmethod
    def told(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration with what is in the file of word vectors, if there is one."""
        file = node.get("glove")
        return {**node, "glove": glove_file(file).digest()} if file else node

    def placed(self) -> None:
        """Read the file of word vectors, if there is one."""
        if isinstance(self.encoder, MeanOfWords):
            self.encoder.words.read()

    @property
    def prompt_positions(self) -> int:
        """The prompt's vectors have positions, and so have two separators around it."""
        return self.length + 2 * (self.position == 4)

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return text and prompt as embeddings `[B, T + G, E]`, and an edit for each layer."""
        given = super().inputs(batch)
        if self.length == 0:
            return given
        instance = self.instance(batch)
        put = insert(self._place(batch), batch.ids.shape[1], self.prompt_positions)
        rows, reads = batch.reads.rows, batch.reads
        given = replace(
            given,
            ids=None,
            embeddings=put.weave(self.backbone.embed(batch.ids), self._made(batch, instance)),
            mask=put.weave(batch.mask, batch.mask.new_ones(len(batch), put.added)),
            types=None if batch.types is None else self._types(batch.types, put),
            edits=self._edits(batch, put, instance),
        )
        return self.readout.request(given, replace(reads, columns=put.moved(rows, reads.columns)))

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples whose M(x) is still to be computed."""
        if self._passes is None:
            return ()
        return self._passes.unprepared(features, training=training)

    def prepare(self, batch: Batch) -> None:
        """Compute M(x) and keep it."""
        assert self._passes is not None, "nothing is unprepared"
        self._passes.prepare(batch)

    def instance(self, batch: Batch) -> Tensor:
        """Return M(x), `[B, H]` or as wide as the word vectors."""
        if not self.prompt.reads_instances:
            return torch.zeros(len(batch), 1, device=batch.ids.device)
        return self.encoder(batch)

    @property
    def _passes(self) -> FrozenPass | None:
        """The pass over the bare text, if prompts are made of it."""
        used = self.length > 0 and self.prompt.reads_instances
        return self.encoder if used and isinstance(self.encoder, FrozenPass) else None

    def _made(self, batch: Batch, instance: Tensor) -> Tensor:
        """Return what is put into the text, `[B, G, E]`."""
        made = self._prompt(batch, 0, self._dropped(batch, 0)(instance))
        if self.position != 4:
            return made
        ends = self.backbone.embed(torch.full_like(batch.ids[:, :1], self._separator))
        return torch.cat([ends, made.to(ends.dtype), ends], dim=1)

    def _edits(self, batch: Batch, put: Insertion, instance: Tensor) -> dict[Site, Edit]:
        """Return what is added after each layer but the last, by site."""
        first = put.at + (self.position == 4)
        columns = first[:, None] + torch.arange(self.length, device=first.device)
        return {
            ("layer", layer - 1): self._edit(batch, layer, columns, instance)
            for layer in range(1, self.layers + 1)
        }

    def _edit(self, batch: Batch, layer: int, columns: Tensor, instance: Tensor) -> Edit:
        """Return what adds a layer's prompt at `columns [B, t]`."""
        rows = torch.arange(len(batch), device=columns.device)[:, None]

        def edit(hidden: Tensor) -> Tensor:
            if self.source == "previous":
                seen = hidden[:, 0].float()  # without dropout, as the released code
            else:
                seen = self._dropped(batch, 2 * layer)(instance)
            made = self._prompt(batch, layer, seen).to(hidden.dtype)
            return hidden.index_put((rows, columns), hidden[rows, columns] + made)

        return edit

    def _prompt(self, batch: Batch, site: int, instance: Tensor) -> Tensor:
        made: Tensor = self.prompt(site, instance, self._dropped(batch, 2 * site + 1))
        return made

    def _dropped(self, batch: Batch, site: int) -> Callable[[Tensor], Tensor]:
        return lambda x: drop(x, batch.keys, _SITE + site, self.dropout)

    def _place(self, batch: Batch) -> Tensor:
        if self.position == 0:
            return torch.ones_like(batch.ids[:, 0])
        return place(self.position, batch.mask, batch.mask & (batch.ids == self._separator))

    def _types(self, types: Tensor, put: Insertion) -> Tensor:
        """Return segment ids, a prompt's as that of the token before it."""
        before = types.gather(1, put.at[:, None] - 1)
        return put.weave(types, before.expand(-1, put.added))

    @property
    def _separator(self) -> int:
        return int(self.backbone.tokenizer().sep_token_id)


def _check(length: int, position: int, dropout: float) -> None:
    if length < 0:
        raise UserError(f"method.length is {length}; use 0 (no prompt) or more.")
    if position not in get_args(Place):
        raise UserError(f"method.position is {position}; use 0, 1, 2, 3 or 4.")
    if not 0 <= dropout < 1:
        raise UserError(f"method.dropout is {dropout}; use 0 or more, and less than 1.")


def _check_glove(glove: str | None, source: Source) -> None:
    if glove is not None and source == "previous":
        raise UserError(
            "method.glove: layers' generators cannot read word vectors and [CLS] states alike; "
            "type method.source=first."
        )
