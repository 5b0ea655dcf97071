"""IDPG: a small generator makes prompt vectors for each instance, the backbone frozen.

Wu et al. 2022. The generator reads M(x), the [CLS] state of a frozen pass over the bare text. The
input prompt joins the raw word embeddings; positions count over text and prompt. With `deep`
(M-IDPG) a prompt is added to the hidden states at the prompt's positions after every layer except
the last, which the read-out could not see. `generator=none` is the tables' additive P-tuning v2,
with `deep=false` their prompt tuning.

As in the released code, the [CLS] states that the generators of layers read have no dropout. On
models with segments a prompt has the segment of the token before it. Departs from the code: the
frozen pass has no dropout in training, so M(x) is computed once for each example.
`instance_dropout=true` draws it anew in every step, as released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput, Edit, Site
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method, check_dropout
from ptrun.method.instance import FrozenPass, MeanOfWords
from ptrun.prompt.generator import Form, Generators, Kind, Sharing
from ptrun.prompt.glove import glove as glove_file
from ptrun.prompt.insertion import Insertion, Place, insert, place
from ptrun.readout.base import Batch, Features
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

Source = Literal["previous", "first"]

_SITE = 1_100_000  # first dropout site, above every site of a backbone


class IDPG(Method):
    """Generated prompts `[B, t, H]` at the input and after layers, and a read-out.

    Args:
        length: t, in vectors; 0 is the bare backbone with a head.
        sharing: what layers share: S everything, M all but a bias a layer, L nothing.
        deep: add prompts after layers too (M-IDPG), not only at the input (S-IDPG).
        generator: `phm`, `dense`, or `none` for biases only.
        hidden: m, the generator's width; 0 is one map, E = W z + b.
        order: n of `phm`; it must divide the widths of its maps.
        shared_mixing: for `phm`, share one A between both maps of a generator.
        layer_norm, residual: of the input's prompt (`ptrun.prompt.generator.Form`).
        source: input of the layers' generators: the [CLS] state there (`previous`), or M(x).
        glove: a local file of word vectors. M(x) is then their average over the text's words.
            Null uses the frozen pass.
        instance_dropout: use dropout in the frozen pass in training.
        position: where the prompt is inserted, `ptrun.prompt.insertion.Place`.
        dropout: of M(x) and of hidden units, in training.

    Raises:
        UserError: a value is out of range, or the prompt leaves no room for text.
    """

    needs: ClassVar[Mapping[str, str]] = {"encoder": "an encoder"}
    may_differ = ("dropout",)

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        reading: Reading | None = None,
        *,
        length: int = 5,
        sharing: Sharing = "M",
        deep: bool = True,
        generator: Kind = "phm",
        hidden: int = 16,
        order: int = 16,
        shared_mixing: bool = False,
        layer_norm: bool = False,
        residual: bool = False,
        source: Source = "previous",
        glove: str | None = None,
        instance_dropout: bool = False,
        position: Place = 0,
        dropout: float = 0.1,
    ):
        super().__init__(backbone, task, reading)
        _check(length, position)
        check_dropout(dropout)
        _check_glove(glove, source if deep else "first")
        self.length, self.source, self.dropout = length, source, dropout
        self.position: Place = position
        self.room()
        shape = backbone.shape
        self.layers = shape.layers - 1 if deep else 0
        widths = [shape.embedding_size, *[shape.hidden_size] * self.layers]
        form = Form(generator, hidden, order, shared_mixing, layer_norm, residual)
        self.encoder: FrozenPass | MeanOfWords = (
            MeanOfWords(backbone, glove)
            if glove is not None
            else FrozenPass(backbone, dropout=instance_dropout)
        )
        self.prompt = Generators(widths, self.encoder.width, length, sharing, form)

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return the keys of maps that the generator lacks, and those of deep prompts without."""
        kind, deep = node.get("generator", "phm"), node.get("deep", True)
        unused = {
            "order": kind != "phm",
            "shared_mixing": kind != "phm" or node.get("hidden") == 0,
            **dict.fromkeys(("hidden", "dropout", "glove", "instance_dropout"), kind == "none"),
            "source": kind == "none" or not deep,
            "sharing": not deep,
        }
        return {key for key, is_unused in unused.items() if is_unused}

    @classmethod
    def fingerprint_config(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the configuration with a digest in place of the file of word vectors."""
        file = node.get("glove")
        return {**node, "glove": glove_file(file).digest()} if file else node

    def placed(self) -> None:
        """Read the file of word vectors, if there is one."""
        if isinstance(self.encoder, MeanOfWords):
            self.encoder.words.read()

    @property
    def prompt_positions(self) -> int:
        """Positions of the prompt's vectors, and of two separators around it at `position` 4."""
        return self.length + 2 * (self.position == 4)

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return text and prompt as embeddings `[B, T + G, E]`, and an edit for each layer."""
        text = super().inputs(batch)
        if self.length == 0:
            return text
        instance = self.instance(batch)
        put = insert(self._place(batch), batch.ids.shape[1], self.prompt_positions)
        prompted = replace(
            text,
            ids=None,
            embeddings=put.weave(self.backbone.embed(batch.ids), self._inserted(batch, instance)),
            mask=put.weave(batch.mask, batch.mask.new_ones(len(batch), put.added)),
            lengths=[length + put.added for length in batch.lengths],
            types=None if batch.types is None else self._types(batch.types, put),
            edits=self._edits(batch, put, instance),
        )
        moved = put.moved(batch.reads.rows, batch.reads.columns)
        return self.readout.request(prompted, replace(batch.reads, columns=moved))

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples whose M(x) is not computed yet."""
        frozen = self._frozen_pass
        return frozen.unprepared(features, training=training) if frozen else ()

    def prepare(self, batch: Batch) -> None:
        """Compute M(x) and keep it."""
        assert self._frozen_pass is not None, "nothing is unprepared"
        self._frozen_pass.prepare(batch)

    def instance(self, batch: Batch) -> Tensor:
        """Return M(x), `[B, H]` or as wide as the word vectors."""
        if not self.prompt.reads_instances:
            return torch.zeros(len(batch), 1, device=batch.ids.device)
        return self.encoder(batch)

    @property
    def _frozen_pass(self) -> FrozenPass | None:
        used = self.length > 0 and self.prompt.reads_instances
        return self.encoder if used and isinstance(self.encoder, FrozenPass) else None

    def _inserted(self, batch: Batch, instance: Tensor) -> Tensor:
        """Return the vectors to insert into the text, `[B, G, E]`."""
        prompt = self._prompt(batch, 0, self._dropped(batch, 0, instance))
        if self.position != 4:
            return prompt
        ends = self.backbone.embed(torch.full_like(batch.ids[:, :1], self._separator))
        return torch.cat([ends, prompt.to(ends.dtype), ends], dim=1)

    def _edits(self, batch: Batch, put: Insertion, instance: Tensor) -> dict[Site, Edit]:
        first = put.at + (self.position == 4)
        columns = first[:, None] + torch.arange(self.length, device=first.device)
        return {
            ("layer", layer - 1): self._edit(batch, layer, columns, instance)
            for layer in range(1, self.layers + 1)
        }

    def _edit(self, batch: Batch, layer: int, columns: Tensor, instance: Tensor) -> Edit:
        """Return the edit that adds a layer's prompt at `columns [B, t]`."""
        rows = torch.arange(len(batch), device=columns.device)[:, None]

        def edit(hidden: Tensor) -> Tensor:
            if self.source == "previous":
                source = hidden[:, 0].float()  # without dropout, as in the released code
            else:
                source = self._dropped(batch, 2 * layer, instance)
            prompt = self._prompt(batch, layer, source).to(hidden.dtype)
            return hidden.index_put((rows, columns), hidden[rows, columns] + prompt)

        return edit

    def _prompt(self, batch: Batch, layer: int, source: Tensor) -> Tensor:
        prompt: Tensor = self.prompt(layer, source, partial(self._dropped, batch, 2 * layer + 1))
        return prompt

    def _dropped(self, batch: Batch, site: int, values: Tensor) -> Tensor:
        return drop(values, batch.keys, _SITE + site, self.dropout)

    def _place(self, batch: Batch) -> Tensor:
        if self.position == 0:
            return torch.ones_like(batch.ids[:, 0])
        return place(self.position, batch.mask, batch.mask & (batch.ids == self._separator))

    def _types(self, types: Tensor, put: Insertion) -> Tensor:
        """Return segment ids; a prompt has that of the token before it."""
        before = types.gather(1, put.at[:, None] - 1)
        return put.weave(types, before.expand(-1, put.added))

    @property
    def _separator(self) -> int:
        return int(self.backbone.tokenizer().sep_token_id)


def _check(length: int, position: int) -> None:
    if length < 0:
        raise UserError(f"method.length is {length}; use 0 (no prompt) or more.")
    if position not in get_args(Place):
        raise UserError(f"method.position is {position}; use 0, 1, 2, 3 or 4.")


def _check_glove(glove: str | None, source: Source) -> None:
    if glove is not None and source == "previous":
        raise UserError(
            "method.glove: a generator cannot read both word vectors and [CLS] states; "
            "type method.source=first."
        )
