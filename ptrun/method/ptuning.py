"""P-tuning: learned vectors at slots of a pattern, made by a small encoder.

Liu et al. 2021, "GPT Understands, Too", §3. Two regimes: on LAMA the backbone is frozen and each
relation has a prompt of its own; on SuperGLUE the backbone is tuned with the prompt
(`tune_backbone: true`). The vectors replace raw word embeddings, so the model adds positions once.
Words around the slots are anchors.

Departs from the released code, by default:
- on LAMA the mask comes after the subject, as printed; the code's order is
  `readout.pattern=ptuning_code` (the authors saw no difference);
- a left-to-right backbone is trained at the position that predicts the answer; the code trains the
  one before, by mistake: `readout.shifted_label=true`;
- a pattern with `||` has two segments; the code has one, with "[SEP]" in it:
  `readout.literal_sep=true`;
- COPA has a margin for each example, WSC one extra mask; the code has one margin a batch and 0 to 3
  masks: `readout.objective=batch_margin`, `readout.random_masks=true`.
`method=ptuning_fewglue` does as the code in the last two.
As in the code, the frozen backbone has dropout while the prompt is trained (its loop calls
`model.train()`); `method.lm_eval_mode=true` switches that off.
COPA, WSC: see `ptrun.readout.verbalizer`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ptrun.backbone.base import BackboneInput
from ptrun.errors import UserError
from ptrun.method.base import Folded
from ptrun.prompt import Kind, PromptEncoder, Width
from ptrun.readout.base import Batch
from ptrun.readout.cloze import Cloze


class PTuning(Folded):
    """Vectors `[m, E]` at the `{soft}` slots of a pattern, m their number.

    Args:
        encoder, hidden: `kind` and `hidden` of `ptrun.prompt.PromptEncoder`.
        tune_backbone: learn the backbone too.
        per_relation: on fact probing, train a separate prompt for each relation.
        lm_eval_mode: switch the frozen backbone's dropout off while the prompt is trained.

    Raises:
        UserError: both `lm_eval_mode` and `tune_backbone` are set.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=ptuning")
    >>> method.prompt().shape, batch.softs.shape  # [vectors, E], [B, vectors]
    (torch.Size([3, 128]), torch.Size([2, 3]))
    """

    soft = True
    static = True
    finished = "prompt.vectors"
    readouts = ("verbalizer", "writing")

    def __init__(
        self,
        *run: Any,
        encoder: Kind = "lstm",
        hidden: Width = "half",
        tune_backbone: bool = False,
        per_relation: bool = True,
        lm_eval_mode: bool = False,
    ):
        super().__init__(*run)
        if lm_eval_mode and tune_backbone:
            raise UserError(
                "method.lm_eval_mode=true is for a frozen backbone, but "
                "method.tune_backbone=true tunes it; leave one of them out."
            )
        assert isinstance(self.readout, Cloze)
        self.lm_eval_mode = lm_eval_mode
        self.tunes_backbone = tune_backbone
        self.per_relation = per_relation and self.task.answer == "word" and not tune_backbone
        self.prompt = PromptEncoder(
            self.readout.pvp.pattern.softs, self.backbone.shape.embedding_size, encoder, hidden
        )

    @classmethod
    def tunes(cls, node: Mapping[str, Any]) -> bool:
        """True with `tune_backbone`."""
        return bool(node.get("tune_backbone"))

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return `hidden` without an LSTM, and `per_relation` if the backbone is tuned."""
        lstm = node.get("encoder", "lstm") == "lstm"
        return {*([] if lstm else ["hidden"]), *(["per_relation"] if cls.tunes(node) else [])}

    @classmethod
    def learns_vectors(cls, node: Mapping[str, Any]) -> bool:
        """True without an encoder."""
        return bool(node.get("encoder", "lstm") == "plain")

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text as embeddings `[B, T, E]`, learned vectors at their slots."""
        assert batch.softs is not None
        text = self.backbone.embed(batch.ids)
        vectors = self.prompt().to(text.dtype).expand(len(batch), -1, -1)
        rows = torch.arange(len(batch), device=text.device)[:, None]
        filled = text.index_put((rows, batch.softs), vectors)
        prompted = replace(super().inputs(batch), ids=None, embeddings=filled)
        return replace(prompted, keys=None) if self.lm_eval_mode else prompted

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the encoder's parameters, and the backbone's if it is tuned."""
        body = self.backbone.body(head=True) if self.tunes_backbone else {}
        return super().learned() | {f"backbone.{name}": p for name, p in body.items()}
