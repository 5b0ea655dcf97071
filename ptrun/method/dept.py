"""DePT: a short soft prompt, and a low-rank matrix that is added to the text's word embeddings.

Shi and Lipani 2024, "DePT: Decomposed Prompt Tuning": [P; E(x) + A B] with A `[s, r]` and B
`[r, E]`: row i of A B joins token i of the text. A starts as in LoRA and B at zero. As in the
released code A B is scaled by 8 / sqrt(r); the equation has no scale.

That code cuts and pads all texts to s tokens; here tokens after the first s stay as they are. On
left-to-right models it pads on the left and changes the embeddings of answers in training alone;
here tokens count from the first one, and those of an answer that is written never change.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, on_device
from ptrun.errors import UserError
from ptrun.method.base import rates
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.readout.base import Batch


class DePT(PromptTuning):
    """A soft prompt `[P, E]`, and a matrix of rank r for the embeddings of the text's first tokens.

    Args:
        length: P, in vectors.
        rank: r; 0 is prompt tuning.
        tokens: s, the tokens of a text whose embeddings change.
        pair_lr: learning rate of A and B; None is that of the vectors.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=dept", "method.length=5", "method.rank=2")
    >>> method.inputs(batch).embeddings.shape, method.prompt.rows.shape  # [B, P + T, E], [s, r]
    (torch.Size([2, 31, 128]), torch.Size([256, 2]))
    """

    static = True
    may_differ = ("length", "rank", "tokens", "pair_lr")
    prompt: Any

    def __init__(
        self, *run: Any, length: int, rank: int, tokens: int = 256, pair_lr: float | None = None
    ):
        super().__init__(*run, length=length)
        if rank < 0 or tokens < 1:
            raise UserError(f"method.rank={rank} tokens={tokens}: use 0 or more, and 1 or more.")
        bound = max(1, rank) ** -0.5  # that of kaiming_uniform_ with a=sqrt(5)
        self.scale = 8 * bound  # `lora_alpha` is 8 in the released code
        self.prompt.rows = nn.Parameter(torch.empty(tokens, rank).uniform_(-bound, bound))
        self.prompt.columns = nn.Parameter(torch.zeros(rank, self.backbone.shape.embedding_size))
        self.rates = rates("pair_lr", pair_lr, "prompt.rows", "prompt.columns")

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return the options of the pair at rank 0."""
        return set() if node["rank"] else {"tokens", "pair_lr"}

    @property
    def replays(self) -> bool:
        """False where rows have answers that are written: the host knows where these begin."""
        apart = not self.readout.writes or self.backbone.architecture.writes_apart
        return super().replays and apart

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return prompt and changed text as embeddings `[B, P + T, E]`."""
        prompted, width = super().inputs(batch), batch.ids.shape[1]
        added = (self.prompt.rows[:width] @ self.prompt.columns) * self.scale
        added = functional.pad(added, (0, 0, 0, width - len(added))).expand(len(batch), -1, -1)
        if not self.replays:
            text = [*(feature.facts["prompt"] for feature in batch.features), *batch.filling]
            counts = on_device(text, added.device)[:, None, None]
            within = torch.arange(width, device=added.device)[:, None] < counts  # [B, T, 1]
            added = torch.where(within, added, 0)
        added = self._put(added.new_zeros(len(batch), self.length, added.shape[-1]), added)
        assert prompted.embeddings is not None
        return replace(prompted, embeddings=prompted.embeddings + added.to(prompted.embeddings))
