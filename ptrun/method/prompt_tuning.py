"""Prompt tuning: learned vectors before the input embeddings, the backbone frozen.

Lester et al. 2021 §2 with a classification head instead of generation: the baseline PT of
P-tuning v2. Departs from that paper's released code, which embeds the text twice (positions,
types and LayerNorm before `inputs_embeds`, and again after): here the vectors join the raw word
embeddings and the model adds positions once, from 0 over prompt and text.
"""

from dataclasses import replace
from typing import Unpack

import torch

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.prompt.soft import SoftPrompt
from ptrun.readout.base import Batch
from ptrun.readout.choose import Reading
from ptrun.task.base import Task


class PromptTuning(Method):
    """A soft prompt `[P, E]` before the text, and a head.

    Args:
        backbone: the frozen encoder.
        task: what is answered.
        length: P, in vectors.
        reading: as in `ptrun.readout.choose.Reading`.

    Raises:
        UserError: the prompt leaves no room for text.
    """

    def __init__(
        self, backbone: PretrainedBackbone, task: Task, *, length: int, **reading: Unpack[Reading]
    ):
        super().__init__(backbone, task, **reading)
        self.length = length
        self.room()
        self.prompt = SoftPrompt(length, backbone.shape.embedding_size)

    @property
    def prompt_positions(self) -> int:
        """The prompt's own vectors have positions."""
        return self.length

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return prompt and text as embeddings `[B, P + T, E]`."""
        rows = len(batch)
        text = self.backbone.embed(batch.ids)
        seen = torch.ones(rows, self.length, dtype=torch.bool, device=text.device)
        types = batch.types
        if types is not None:
            types = torch.cat([types.new_zeros(rows, self.length), types], dim=1)
        given = replace(
            super().inputs(batch),
            ids=None,
            embeddings=torch.cat([self.prompt(rows).to(text.dtype), text], dim=1),
            mask=torch.cat([seen, batch.mask], dim=1),
            types=types,
        )
        if batch.decoder is not None:  # reads are the decoder's, which the prompt does not move
            return given
        moved = replace(batch.reads, columns=batch.reads.columns + self.length)
        return self.readout.ask(given, moved)
