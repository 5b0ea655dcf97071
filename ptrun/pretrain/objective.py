"""Objectives: masked words, replaced tokens, the next token, and cut-out spans.

An objective returns its loss, its score and its targets on a batch. The targets give the score of
the best constant prediction.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.pretrain.rows import Batch, padded
from ptrun.pretrain.vocabulary import Marks

IGNORED = -100


@dataclass(frozen=True)
class Scored:
    """The training `loss`, the `reported` loss and its `score` (accuracy or AUC), all `[]`.

    `reported` and `score` are over the `targets` `[K]` only.
    """

    loss: Tensor
    reported: Tensor
    score: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Chance:
    """The random numbers of an objective; special ids are never drawn."""

    dice: torch.Generator
    marks: Marks
    words: int

    def below(self, like: Tensor) -> Tensor:
        """Return uniform numbers in [0, 1), shaped like a tensor."""
        return torch.rand(like.shape, generator=self.dice).to(like.device)

    def words_like(self, ids: Tensor) -> Tensor:
        """Return random ordinary words, shaped like `ids`."""
        low = max(i for i in self.marks.special if i < self.words // 2) + 1
        drawn = torch.randint(low, self.words, ids.shape, generator=self.dice)
        return drawn.to(ids.device)

    def ordinary(self, ids: Tensor) -> Tensor:
        """Return which ids are not special."""
        return ~torch.isin(ids, torch.tensor(self.marks.special, device=ids.device))


Objective = Callable[[Any, Batch, Chance], Scored]


def masked(model: Any, batch: Batch, chance: Chance) -> Scored:
    """Predict the chosen words: 80 % are masked, 10 % are replaced by another word (BERT)."""
    assert chance.marks.mask is not None
    fate, other = chance.below(batch.ids), chance.words_like(batch.ids)
    shown = torch.where(batch.chosen & (fate < 0.8), chance.marks.mask, batch.ids)
    shown = torch.where(batch.chosen & (fate > 0.9), other, shown)
    return top1(_predictions(model, shown, batch), batch.ids[batch.chosen])


def _predictions(model: Any, shown: Tensor, batch: Batch) -> Tensor:
    """Return the logits of a masked model for the chosen tokens `[K, words]`."""
    hidden = model.base_model(
        input_ids=shown,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        position_ids=batch.positions,
    ).last_hidden_state
    logits: Tensor = model.cls(hidden[batch.chosen])
    return logits


def replaced(generator: nn.Module, unseen: float) -> Objective:
    """Detect the words that a frozen masked model has replaced (ELECTRA)."""

    def objective(model: Any, batch: Batch, chance: Chance) -> Scored:
        shown = _replace(generator, unseen, batch, chance)
        places = {"token_type_ids": batch.types, "position_ids": batch.positions}
        scores = model(input_ids=shown, attention_mask=batch.mask, **places).logits
        counted = batch.mask.bool() & chance.ordinary(batch.ids)
        targets = (shown != batch.ids)[counted]
        loss = functional.binary_cross_entropy_with_logits(scores[counted], targets.float())
        return Scored(loss, loss, auc(scores[counted], targets), targets.long())

    return objective


@torch.no_grad()
def _replace(generator: Any, unseen: float, batch: Batch, chance: Chance) -> Tensor:
    """Return ids with the chosen words drawn from the generator's predictions."""
    assert chance.marks.mask is not None
    dark = (chance.below(batch.ids) < unseen) & chance.ordinary(batch.ids)
    seen = torch.where(batch.chosen | dark, chance.marks.mask, batch.ids)
    logits = _predictions(generator, seen, batch).float()
    noise = -torch.log(-torch.log(chance.below(logits).clamp(1e-9, 1 - 1e-7)))  # Gumbel
    shown = batch.ids.clone()
    shown[batch.chosen] = (logits + noise).argmax(-1)
    return shown


def causal(model: Any, batch: Batch, chance: Chance) -> Scored:
    """Predict each next token (GPT-2)."""
    hidden = model.base_model(
        input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions
    ).last_hidden_state
    following = batch.mask[:, 1:].bool()
    return top1(model.lm_head(hidden[:, :-1][following]), batch.ids[:, 1:][following])


def denoising(joined: float) -> Objective:
    """Restore the spans that were cut out, each after its sentinel (T5).

    A span is one word, and with probability `joined` also the next. A row without a span gets a
    sentinel at its end.
    """

    def objective(model: Any, batch: Batch, chance: Chance) -> Scored:
        gone = spans(batch, joined, chance)
        every = zip(batch.ids.tolist(), gone.tolist(), batch.mask.sum(1).tolist(), strict=True)
        pairs = [cut_spans(ids[:size], out, chance.marks) for ids, out, size in every]
        device, pad = batch.ids.device, chance.marks.pad
        text = padded([left for left, _ in pairs], pad).to(device)
        labels = padded([answer for _, answer in pairs], IGNORED).to(device)
        real = labels != IGNORED
        before = functional.pad(labels.masked_fill(~real, pad), (1, 0), value=pad)[:, :-1]
        hidden = model.decoder(
            input_ids=before,
            encoder_hidden_states=model.encoder(
                input_ids=text, attention_mask=text != pad
            ).last_hidden_state,
            encoder_attention_mask=text != pad,
        ).last_hidden_state
        return generated(model.lm_head(hidden[real]), labels[real], chance)

    return objective


def generated(logits: Tensor, targets: Tensor, chance: Chance) -> Scored:
    """Train on all targets, but report only ordinary words: special tokens are easy."""
    words = chance.ordinary(targets)
    scored = top1(logits[words], targets[words])
    return replace(scored, loss=functional.cross_entropy(logits, targets))


def spans(batch: Batch, joined: float, chance: Chance) -> Tensor:
    """Return the cut-out tokens `[B, T]`: the chosen ones, and some of their next ones."""
    follows = functional.pad(batch.chosen, (1, 0))[:, :-1] & (chance.below(batch.ids) < joined)
    return (batch.chosen | follows) & batch.mask.bool() & chance.ordinary(batch.ids)


def cut_spans(ids: list[int], out: list[bool], marks: Marks) -> tuple[list[int], list[int]]:
    """Return the rest of a row with sentinels for its gaps, and the gaps after their sentinels."""
    left: list[int] = []
    answer: list[int] = []
    gaps = 0
    for place, word in enumerate(ids):
        opens = out[place] and not (place and out[place - 1])
        if opens and gaps + 1 < len(marks.sentinels):
            left.append(marks.sentinels[gaps])
            answer.append(marks.sentinels[gaps])
            gaps += 1
        (answer if out[place] and gaps else left).append(word)
    if not gaps:
        left.append(marks.sentinels[0])
        answer.append(marks.sentinels[0])
    return left, [*answer, marks.stop]


def auc(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the area under the ROC curve; ties count half."""
    _, places, counts = torch.unique(scores.float(), return_inverse=True, return_counts=True)
    ranks = counts.cumsum(0) - (counts - 1) / 2
    positive = targets.sum()
    total = ranks[places][targets.bool()].sum()
    pairs = positive * (len(targets) - positive)
    area: Tensor = (total - positive * (positive + 1) / 2) / pairs.clamp(min=1)
    return area


def top1(logits: Tensor, targets: Tensor) -> Scored:
    """Return cross-entropy and accuracy."""
    right = (logits.argmax(-1) == targets).float().mean()
    loss = functional.cross_entropy(logits, targets)
    return Scored(loss, loss, right, targets)
