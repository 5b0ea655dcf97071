"""How the tokens of a text are chosen: processors of scores, most of them of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import moved

_NOISE = 2**62


@dataclass(frozen=True)
class Decoding:
    """How tokens are chosen.

    Args:
        max_new_tokens: the most tokens of a text.
        beams: width of beam search; 1 is greedy.
        temperature: of sampling; 0 takes the likeliest token.
        top_k, top_p: what sampling draws from; null is all tokens.
        repetition_penalty: above 1 lowers tokens that were written before, not those of the prompt.
        length_penalty: of beam search; above 0 favours long texts.
        min_p: sampling leaves out tokens below this share of the likeliest one's probability.
        presence_penalty, frequency_penalty: taken from the logit of a token that was written
            before, once, and for each time.
        logit_bias: what is added to the logits of tokens.
        ends: tokens that end a text.
        stop: texts that end a text.
    """

    max_new_tokens: int = 64
    beams: int = 1
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    repetition_penalty: float = 1.0
    length_penalty: float = 1.0
    min_p: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    ends: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class TokenScore:
    """The log-probability of a token, and those of the likeliest ones at its place."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


Dice = torch.Generator
"""Draws the noise of a row's samples, step by step."""


def processors(decoding: Decoding, seeds: Sequence[int | Dice] | None) -> Any:
    """Return what turns greedy choices into draws: noise on the scores, of each row's own seed.

    The token with the largest sum of log-probability and Gumbel noise is a draw from the
    distribution.
    """
    from transformers import (
        LogitsProcessorList,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    if not decoding.temperature or seeds is None:
        return None
    chain: list[Any] = [TemperatureLogitsWarper(float(decoding.temperature))]
    chain += [TopKLogitsWarper(decoding.top_k)] if decoding.top_k else []
    chain += [TopPLogitsWarper(float(decoding.top_p))] if decoding.top_p else []
    return LogitsProcessorList([*chain, _Gumbel(seeds)])


def dice_of(seed: int) -> Dice:
    """Return the generator of a row's seed."""
    return torch.Generator().manual_seed(seed % _NOISE)


class _Gumbel:
    """Adds noise that a row's seed and the step decide."""

    def __init__(self, seeds: Sequence[int | Dice]):
        self.dice = [seed if isinstance(seed, Dice) else dice_of(seed) for seed in seeds]

    def __call__(self, _ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores `[B, V]` with noise, which their device makes of uniform numbers."""
        width = scores.shape[1]
        drawn = torch.stack([torch.rand(width, generator=dice) for dice in self.dice])
        drawn = moved(drawn, scores.device).clamp(min=1e-20)
        return scores.log_softmax(dim=-1) - (-drawn.log()).clamp(min=1e-20).log()
