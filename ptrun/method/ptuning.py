"""P-tuning: learned vectors at slots of a pattern, made by a small encoder.

Liu et al. 2021, "GPT Understands, Too", §3. Two regimes: on LAMA the backbone is frozen and each
relation has a prompt of its own; on SuperGLUE the backbone is tuned with the prompt
(`tune_backbone: true`). The vectors take the place of raw word embeddings, so the model adds
positions once; words around the slots are anchors.

Departs from the released code, by default:
- on LAMA the mask comes after the subject, as printed; the code's order is
  `method.pattern=ptuning_code` (the authors saw no difference);
- a left-to-right backbone learns at the position that answers; the code learns at the one before,
  by mistake: `method.shifted_label=true`;
- ALBERT gets segment ids in patterns with `||`; the code gives it none.
Follows it where it trains a prompt with dropout in the frozen backbone (its loop calls
`model.train()`); `method.lm_eval_mode=true` switches that off.
COPA, WSC: see `ptrun.readout.candidates` and `ptrun.readout.fill`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import nn

from ptrun.backbone.base import BackboneInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.folded import Folded
from ptrun.prompt.encoder import Kind, PromptEncoder, Width
from ptrun.readout.base import Batch
from ptrun.readout.cloze import Cloze
from ptrun.readout.reading import Reading
from ptrun.task.base import Task


class PTuning(Folded):
    """Vectors `[m, E]` at the `{soft}` slots of a pattern, m their number.

    Args:
        backbone: frozen, unless `tune_backbone`.
        task: what is answered.
        encoder, hidden: as `kind` and `hidden` of `ptrun.prompt.encoder.PromptEncoder`.
        tune_backbone: learn the backbone too.
        per_relation: on fact probing, learn a prompt for each relation, each on its own.
        lm_eval_mode: no dropout in the backbone while the prompt learns; it must be frozen.
        reading: as in `ptrun.readout.reading.Reading`; `readout` is always `verbalizer`.

    Raises:
        UserError: a tuned backbone would be without dropout.
    """

    soft = True
    finished, paper = "prompt.vectors", "P-tuning"
    readouts = ("verbalizer",)

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        encoder: Kind = "lstm",
        hidden: Width = "half",
        tune_backbone: bool = False,
        per_relation: bool = True,
        lm_eval_mode: bool = False,
        **reading: Unpack[Reading],
    ):
        super().__init__(backbone, task, **reading)
        if lm_eval_mode and tune_backbone:
            raise UserError(
                "method.lm_eval_mode=true is for a frozen backbone, but "
                "method.tune_backbone=true tunes it; leave one of them out."
            )
        assert isinstance(self.readout, Cloze)
        self.lm_eval_mode = lm_eval_mode
        self.tunes_backbone = tune_backbone
        self.per_relation = per_relation and task.kind == "facts" and not tune_backbone
        self.prompt = PromptEncoder(
            self.readout.pvp.pattern.softs, backbone.shape.embedding_size, encoder, hidden
        )

    @classmethod
    def learns_vectors(cls, node: Mapping[str, Any]) -> bool:
        """Without an encoder."""
        return bool(node.get("encoder", "lstm") == "plain")

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text as embeddings `[B, T, E]`, learned vectors at their slots."""
        assert batch.softs is not None
        text = self.backbone.embed(batch.ids)
        vectors = self.prompt().to(text.dtype).expand(len(batch), -1, -1)
        rows = torch.arange(len(batch), device=text.device)[:, None]
        filled = text.index_put((rows, batch.softs), vectors)
        given = replace(super().inputs(batch), ids=None, embeddings=filled)
        return replace(given, keys=None) if self.lm_eval_mode else given

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the encoder's parameters, and the backbone's if it is tuned."""
        body = self.backbone.body(head=True) if self.tunes_backbone else {}
        return super().learned() | {f"backbone.{name}": p for name, p in body.items()}
