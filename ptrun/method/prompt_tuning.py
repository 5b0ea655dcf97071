"""Prompt tuning: learned vectors before the input embeddings, the backbone frozen.

Lester et al. 2021, §2, on every family. With a classification head instead of generation it is the
baseline PT of P-tuning v2. With a verbalizer it is Vanilla PT of PPT (the vectors stand before a
pattern of the text and its mask) and Hybrid PT (a pattern with words).

The vectors join the raw word embeddings, and the model adds positions once, from 0 over prompt and
text. P-tuning v2's released code adds position, type and LayerNorm to the text, and then again to
prompt and text: `double_embedding`, off by default. `start` sets the initial prompt
(`ptrun.start`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ptrun.backbone.base import BackboneInput
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt import SoftPrompt
from ptrun.readout.base import Batch


class PromptTuning(Method):
    """A soft prompt `[P, E]` before the text, or after its first token, and a read-out.

    Args:
        length: P, in vectors; 100 in PPT.
        rescale: the vectors are the learned table times this. 100 reproduces PPT, whose stored
            prompt is 1/100 of the vectors: it equals rescale 1 with 100 times the learning rate
            and 1/100 of decay, clipping threshold and AdamW's epsilon.
        after: number of the text's tokens before the prompt: 0, or 1 for [CLS]. Null is 1 for
            blank infillers, as in GLM's code, else 0.
        double_embedding: embed the text twice, as the PT baseline of P-tuning v2's released code
            does. For BERT-like encoders only.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=prompt_tuning", "method.length=5")
    >>> batch.ids.shape, method.inputs(batch).embeddings.shape  # [B, T], [B, P + T, E]
    (torch.Size([2, 26]), torch.Size([2, 31, 128]))
    """

    static = True
    may_differ: ClassVar[Sequence[str]] = ("length", "rescale")
    form: ClassVar[type[SoftPrompt]] = SoftPrompt

    def __init__(
        self,
        *run: Any,
        length: int,
        rescale: float = 1.0,
        after: Literal[0, 1] | None = None,
        double_embedding: bool = False,
    ):
        super().__init__(*run)
        if double_embedding and not self.backbone.architecture.embeds_whole:
            raise UserError(
                f"method.double_embedding=true: {self.backbone.name} is "
                f"{self.backbone.config['model_type']}; use a backbone that is like BERT, or false."
            )
        self.after = int(self.backbone.architecture.has_blank) if after is None else after
        self.length, self.double_embedding = length, double_embedding
        self.room()
        self.prompt = self.form(length, self.backbone.shape.embedding_size, rescale=rescale)

    @classmethod
    def learns_vectors(cls, node: Mapping[str, Any]) -> bool:
        """Always true."""
        return True

    @property
    def prompt_positions(self) -> int:
        """P: each vector has a position."""
        return self.length

    def vectors(self, batch: Batch) -> Tensor:
        """Return the prompt of each row, `[B, P, E]`."""
        return self.prompt.vectors().expand(len(batch), -1, -1)

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return text and prompt as embeddings `[B, P + T, E]`."""
        return self.prompted(batch, self.vectors(batch))

    def prompted(self, batch: Batch, vectors: Tensor) -> BackboneInput:
        """Return text and vectors `[B, P, E]` as embeddings `[B, P + T, E]`."""
        rows = len(batch)
        if self.double_embedding:
            text = self.backbone.embed_whole(super().inputs(batch))
        else:
            text = self.backbone.embed(batch.ids)
        seen = torch.ones(rows, self.length, dtype=torch.bool, device=text.device)
        types = batch.types
        if types is not None:
            types = self._put(types.new_zeros(rows, self.length), types)
            if self.double_embedding:  # the released code passes segments the first time only
                types = torch.zeros_like(types)
        prompted = replace(
            super().inputs(batch),
            ids=None,
            embeddings=self._put(vectors.to(text.dtype), text),
            mask=self._put(seen, batch.mask),
            lengths=[max(length, self.after) + self.length for length in batch.lengths],
            types=types,
        )
        if batch.decoder is not None:  # reads are positions of the decoder: the prompt moves none
            return prompted
        columns = batch.reads.columns
        moved = columns + self.length * (columns >= self.after)
        return self.readout.request(prompted, replace(batch.reads, columns=moved))

    def _put(self, vectors: Tensor, tokens: Tensor) -> Tensor:
        """Insert `[B, P, ...]` into `[B, T, ...]`."""
        return torch.cat([tokens[:, : self.after], vectors, tokens[:, self.after :]], dim=1)

    def exported(self) -> dict[str, Tensor]:
        """Return the finished vectors as `prompt.table`, and the head."""
        return super().exported() | {"prompt.table": self.prompt.vectors().detach()}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load finished vectors and a head."""
        super().load_exported(tensors)
        self.prompt.begin(tensors["prompt.table"])

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return the table that gives these vectors."""
        return {name: tensor / self.prompt.rescale for name, tensor in exported.items()}
