"""ATTEMPT: each text mixes the prompts of other tasks, by attention, and the prompt of its own.

Asai et al. 2022, §3: P(x) = P + Σ_j a_j P_j over the frozen source prompts and the learned prompt P
itself. a = softmax_j(max(P_j) · G(max(E(x))) / T), where max is over positions, G is Linear, SiLU,
Linear, LayerNorm, and T is e times the width. `start=joined:RUN+RUN+...` names the runs of the
source prompts; without any the prompt is 2 P.

Departs from the released code: padding does not enter the maximum over a text, the learned prompt
starts at N(0, 0.02²), the attention has the rate of the prompt, and a run has one task.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.prompt import SoftPrompt, drawn
from ptrun.readout.base import Batch

_HIDDEN = 100  # of the attention, as released


class _MixedPrompt(SoftPrompt):
    """A learned prompt `[P, E]`, frozen `sources` `[t, P, E]`, and the attention over all."""

    def __init__(self, length: int, width: int, rescale: float = 1.0):
        super().__init__(length, width, rescale=rescale)
        down, up = nn.Linear(width, _HIDDEN, bias=False), nn.Linear(_HIDDEN, width, bias=False)
        self.attention = nn.Sequential(drawn(down), nn.SiLU(), drawn(up), nn.LayerNorm(width))
        self.sources: Tensor
        self.register_buffer("sources", torch.zeros(0, length, width))

    def mixed(self, text: Tensor, mask: Tensor) -> Tensor:
        """Return the prompts `[B, P, E]` of texts `[B, T, E]` with masks `[B, T]`."""
        prompts = torch.cat([self.sources, self.vectors()[None]])
        most = text.float().masked_fill(~mask[..., None], -torch.inf).amax(dim=1)
        query: Tensor = self.attention(most)
        scores = query @ prompts.amax(dim=1).T / (math.e * text.shape[-1])
        return prompts[-1] + torch.einsum("bt,tpe->bpe", scores.softmax(dim=-1), prompts)


class Attempt(PromptTuning):
    """A soft prompt for each text, mixed from learned and frozen ones, and a read-out.

    Args: those of `PromptTuning`; the source prompts have the same length.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=attempt", "method.length=5")
    >>> method.vectors(batch).shape  # [B, P, E]
    torch.Size([2, 5, 128])
    """

    form: ClassVar[type[SoftPrompt]] = _MixedPrompt
    prompt: _MixedPrompt

    def join(self, runs: Sequence[tuple[Path, Mapping[str, Tensor]]]) -> None:
        """Take the prompts of runs of `prompt_tuning` as sources."""
        tables = [tensors.get("prompt.table", torch.zeros(0)) for _, tensors in runs]
        for (folder, tensors), table in zip(runs, tables, strict=True):
            if len(tensors) > 1 or table.shape != self.prompt.table.shape:
                raise UserError(
                    f"start=joined: {folder} is no run of prompt_tuning with method.length="
                    f"{self.length}."
                )
        self.prompt.sources = torch.stack(tables).to(self.prompt.table)

    def vectors(self, batch: Batch) -> Tensor:
        """Return the prompt of each row, `[B, P, E]`."""
        return self.prompt.mixed(self.backbone.embed(batch.ids), batch.mask)

    def exported(self) -> dict[str, Tensor]:
        """Return the learned tensors, and the source prompts."""
        return {**super().exported(), "prompt.sources": self.prompt.sources}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load learned tensors, and source prompts."""
        super().load_exported(tensors)
        self.prompt.sources = tensors["prompt.sources"].to(self.prompt.table)
