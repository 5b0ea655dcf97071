"""How the tokens of a text are chosen: processors of scores, most of them of transformers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ptrun.backbone.base import moved, on_device

_NOISE = 2**62
_NEVER = -9999.0  # the log-probability of what is impossible: JSON has no infinity


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


def token_scores(logits: Tensor, tokens: Sequence[int], top: int) -> list[TokenScore]:
    """Return the score of a token for each row of logits `[K, V]`, with those of the `top` ones.

    >>> import torch
    >>> from ptrun.backbone.choosing import token_scores
    >>> token_scores(torch.tensor([[0.0, 0.0]]), [1], top=0)
    [TokenScore(token=1, logprob=-0.6931471824645996, top=())]
    """
    shares = logits.float().log_softmax(dim=-1).clamp(min=_NEVER)
    logprobs = shares.gather(1, on_device(list(tokens), shares.device)[:, None])[:, 0].tolist()
    best = shares.topk(min(top, shares.shape[1]), dim=-1)
    rows = zip(tokens, logprobs, best.indices.tolist(), best.values.tolist(), strict=True)
    return [TokenScore(t, p, tuple(zip(*likeliest, strict=True))) for t, p, *likeliest in rows]


Dice = torch.Generator
"""Draws the noise of a row's samples, step by step."""

Grammar = Callable[[Sequence[int], Tensor], Tensor]
"""Returns scores `[V]`, lowest where a token may not follow those that are written."""


def processors(
    decoding: Decoding,
    seeds: Sequence[int | Dice] | None,
    grammars: Sequence[Grammar | None] = (),
    before: int = 0,
) -> Any:
    """Return what changes the scores of next tokens, `([B, S], [B, V]) -> [B, V]`; None: nothing.

    `before` of the S tokens are those of the prompt, which no penalty sees. A grammar comes first,
    so that all others choose from the tokens that it allows. Samples are greedy choices with noise
    of each row's own seed: the token with the largest sum of log-probability and Gumbel noise is a
    draw from the distribution.
    """
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        SequenceBiasLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    chain: list[Any] = [_Grammars(grammars, before)] if any(grammars) else []
    if decoding.logit_bias:
        bias = [[[token], float(value)] for token, value in decoding.logit_bias]
        chain.append(SequenceBiasLogitsProcessor(bias))
    if decoding.repetition_penalty != 1.0:
        penalty = float(decoding.repetition_penalty)
        chain.append(RepetitionPenaltyLogitsProcessor(penalty, prompt_ignore_length=before))
    if decoding.presence_penalty or decoding.frequency_penalty:
        chain.append(_Penalties(decoding.presence_penalty, decoding.frequency_penalty, before))
    if decoding.temperature and seeds is not None:
        chain.append(TemperatureLogitsWarper(float(decoding.temperature)))
        chain += [TopKLogitsWarper(decoding.top_k)] if decoding.top_k else []
        chain += [TopPLogitsWarper(float(decoding.top_p))] if decoding.top_p else []
        chain += [MinPLogitsWarper(float(decoding.min_p))] if decoding.min_p else []
        chain.append(_Gumbel(seeds))
    return LogitsProcessorList(chain) if chain else None


class _Writer(Protocol):
    """A row whose text is written: `tokens` so far, and how the next one is chosen."""

    decoding: Any
    dice: Dice | None
    grammar: Any
    tokens: list[int]


def choose(logits: Tensor, rows: Sequence[_Writer]) -> list[int]:
    """Return the next token of each row, from logits `[B, V]`; equal settings share processors."""
    alike: dict[Any, list[int]] = {}
    for place, row in enumerate(rows):
        settings = replace(row.decoding, max_new_tokens=1, stop=(), ends=())
        penalties = settings.presence_penalty, settings.frequency_penalty
        looks = row.grammar or any(penalties) or settings.repetition_penalty != 1.0
        alike.setdefault((settings, len(row.tokens) if looks else 0), []).append(place)
    chosen = [0] * len(rows)
    for (settings, length), places in alike.items():
        dice, grammars = ([getattr(rows[p], n) for p in places] for n in ("dice", "grammar"))
        scores, chain = logits[places], processors(settings, dice, grammars)
        if chain is not None:
            ids = on_device([rows[place].tokens[:length] for place in places], scores.device)
            scores = chain(ids, scores.float())
        for place, token in zip(places, scores.argmax(dim=-1).tolist(), strict=True):
            chosen[place] = token
    return chosen


def dice_of(seed: int) -> Dice:
    """Return the generator of a row's seed."""
    return torch.Generator().manual_seed(seed % _NOISE)


@dataclass(frozen=True)
class _Grammars:
    """Leaves each row the tokens that its grammar allows."""

    grammars: Sequence[Grammar | None]
    before: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores `[B, V]`."""
        rows = zip(self.grammars, ids[:, self.before :].tolist(), scores, strict=True)
        return torch.stack([grammar(ids, row) if grammar else row for grammar, ids, row in rows])


@dataclass(frozen=True)
class _Penalties:
    """OpenAI's penalties: for being there, and for each time."""

    presence: float
    frequency: float
    before: int

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores `[B, V]`."""
        written = ids[:, self.before :]
        counts = torch.zeros_like(scores).scatter_add(1, written, scores.new_ones(written.shape))
        return scores - self.presence * (counts > 0) - self.frequency * counts


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
