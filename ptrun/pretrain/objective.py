"""What a model is trained to do: fill in, tell original from replaced, go on, restore spans.

An objective returns its loss and score on a batch, and the targets it was scored on, so that the
best constant answer can stand beside the model's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.pretrain.rows import Batch
from ptrun.pretrain.vocabulary import Marks

_IGNORED = -100


@dataclass(frozen=True)
class Scored:
    """What is trained on and what is reported, `[]` each, and the targets `[K]` of the report.

    `loss` is trained on; `reported` and `score` (accuracy, or AUC) are over the targets alone.
    """

    loss: Tensor
    reported: Tensor
    score: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Chance:
    """What an objective draws with, and the ids it may not draw."""

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


Objective = Callable[[Any, Batch, Chance], Scored]


def masked(model: Any, batch: Batch, chance: Chance) -> Scored:
    """Fill in chosen words: 80 % shown as the mask, 10 % as another word (BERT)."""
    assert chance.marks.mask is not None
    fate, other = chance.below(batch.ids), chance.words_like(batch.ids)
    shown = torch.where(batch.chosen & (fate < 0.8), chance.marks.mask, batch.ids)
    shown = torch.where(batch.chosen & (fate > 0.9), other, shown)
    hidden = model.base_model(
        input_ids=shown,
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        position_ids=batch.positions,
    ).last_hidden_state
    return top1(model.cls(hidden[batch.chosen]), batch.ids[batch.chosen])


def replaced(generator: nn.Module, unseen: float) -> Objective:
    """Tell words that a frozen masked model wrote from those of the text (ELECTRA)."""

    def objective(model: Any, batch: Batch, chance: Chance) -> Scored:
        shown = _replace(generator, unseen, batch, chance)
        given = {"token_type_ids": batch.types, "position_ids": batch.positions}
        scores = model(input_ids=shown, attention_mask=batch.mask, **given).logits
        special = torch.tensor(chance.marks.special, device=shown.device)
        counted = batch.mask.bool() & ~torch.isin(batch.ids, special)
        targets = (shown != batch.ids)[counted]
        loss = functional.binary_cross_entropy_with_logits(scores[counted], targets.float())
        return Scored(loss, loss, auc(scores[counted], targets), targets.long())

    return objective


@torch.no_grad()
def _replace(generator: Any, unseen: float, batch: Batch, chance: Chance) -> Tensor:
    """Return ids with the chosen words drawn from what the generator thinks stands there."""
    assert chance.marks.mask is not None
    special = torch.tensor(chance.marks.special, device=batch.ids.device)
    dark = (chance.below(batch.ids) < unseen) & ~torch.isin(batch.ids, special)
    hidden = generator.base_model(
        input_ids=torch.where(batch.chosen | dark, chance.marks.mask, batch.ids),
        attention_mask=batch.mask,
        token_type_ids=batch.types,
        position_ids=batch.positions,
    ).last_hidden_state
    logits = generator.cls(hidden[batch.chosen]).float()
    noise = -torch.log(-torch.log(chance.below(logits).clamp(1e-9, 1 - 1e-7)))  # Gumbel
    shown = batch.ids.clone()
    shown[batch.chosen] = (logits + noise).argmax(-1)
    return shown


def causal(model: Any, batch: Batch, chance: Chance) -> Scored:
    """Say each next word (GPT-2)."""
    hidden = model.base_model(
        input_ids=batch.ids, attention_mask=batch.mask, position_ids=batch.positions
    ).last_hidden_state
    following = batch.mask[:, 1:].bool()
    return top1(model.lm_head(hidden[:, :-1][following]), batch.ids[:, 1:][following])


def denoising(joined: float) -> Objective:
    """Restore what was cut out, span by span, each behind its sentinel (T5).

    A span is one word, and with the chance `joined` also the next; a row with none ends in one.
    """

    def objective(model: Any, batch: Batch, chance: Chance) -> Scored:
        gone = spans(batch, joined, chance)
        pairs = [
            cut_spans(ids[: int(size)], out, chance.marks)
            for ids, out, size in zip(
                batch.ids.tolist(), gone.tolist(), batch.mask.sum(1), strict=True
            )
        ]
        device, pad = str(batch.ids.device), chance.marks.pad
        given, labels = padded([g for g, _ in pairs], pad), padded([t for _, t in pairs], _IGNORED)
        given, labels = given.to(device), labels.to(device)
        real = labels != _IGNORED
        before = functional.pad(labels.masked_fill(~real, pad), (1, 0), value=pad)[:, :-1]
        hidden = model.decoder(
            input_ids=before,
            encoder_hidden_states=model.encoder(
                input_ids=given, attention_mask=given != pad
            ).last_hidden_state,
            encoder_attention_mask=given != pad,
        ).last_hidden_state
        logits, targets = model.lm_head(hidden[real]), labels[real]
        special = torch.tensor(chance.marks.special, device=targets.device)
        words = ~torch.isin(targets, special)  # sentinels and the stop are easy, and not reported
        told = top1(logits[words], targets[words])
        return Scored(
            functional.cross_entropy(logits, targets), told.loss, told.score, told.targets
        )

    return objective


def spans(batch: Batch, joined: float, chance: Chance) -> Tensor:
    """Return what is cut out, `[B, T]`: the chosen words, and with a chance the next ones too."""
    follows = functional.pad(batch.chosen, (1, 0))[:, :-1] & (chance.below(batch.ids) < joined)
    special = torch.tensor(chance.marks.special, device=batch.ids.device)
    return (batch.chosen | follows) & batch.mask.bool() & ~torch.isin(batch.ids, special)


def cut_spans(ids: list[int], out: list[bool], marks: Marks) -> tuple[list[int], list[int]]:
    """Return what is left of a row, sentinels for its gaps, and the gaps behind their sentinels."""
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


def padded(lists: list[list[int]], value: int) -> Tensor:
    """Return rows `[B, T]` filled up on the right."""
    width = max(map(len, lists))
    return torch.tensor([row + [value] * (width - len(row)) for row in lists])


def auc(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the chance that a true target scores above a false one, ties counted half."""
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
