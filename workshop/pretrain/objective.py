"""Objectives: masked words, replaced tokens, the next token, and cut-out spans.

An objective returns its loss, its score and its targets on a batch. The targets give the score of
the best constant prediction.

Blank infilling (Du et al. 2022, §2.1): spans are cut out of the text and appended to it.

    [CLS] A film by [MASK] , and [MASK] one . <|endoftext|> | <sop> a good | <sop> Ann Lee
      0   1  2   3    4    5  6     7    8   9      10      |   7    7   7 |   4    4   4
      0   0  0   0    0    0  0     0    0   0       0      |   1    2   3 |   1    2   3

The two lines below the tokens are their positions. A token of a span has the place of its [MASK],
and its number 1, 2, ... in the span. All tokens attend to the text; a span also attends to the
spans before it, whose order is random. The targets are `a good <eop> Ann Lee <eop>`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.papers.backbone import both_ways
from workshop.pretrain.rows import Batch, padded
from workshop.pretrain.vocabulary import Marks

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


@dataclass(frozen=True)
class Blanked:
    """A row with blanks: its `text`, and four lists of equal length for the appended spans."""

    text: list[int]
    answer: list[int]
    targets: list[int]
    places: list[int]
    inside: list[int]


def infilling(joined: float) -> Objective:
    """Restore the spans behind the blanks (GLM).

    A span is one word, and with probability `joined` also the next. Each row hides at least a word.
    """

    def objective(model: Any, batch: Batch, chance: Chance) -> Scored:
        gone = at_least_one(spans(batch, joined, chance), batch, chance)
        every = zip(batch.ids.tolist(), gone.tolist(), batch.mask.sum(1).tolist(), strict=True)
        rows = [blanked(ids[:size], out, chance) for ids, out, size in every]
        hidden = read(model, rows, batch.positions[:, 0], chance.marks.pad)
        labels = padded([row.targets for row in rows], IGNORED).to(hidden.device)
        real = labels != IGNORED
        return generated(model.lm_head(hidden[real]), labels[real], chance)

    return objective


def at_least_one(gone: Tensor, batch: Batch, chance: Chance) -> Tensor:
    """Return the cut-out tokens `[B, T]`, with one random word in rows that have none."""
    drawn = chance.below(batch.ids).masked_fill(~chance.ordinary(batch.ids), -1.0).argmax(1)
    one = functional.one_hot(drawn, gone.shape[1]).bool()
    return gone | (one & ~gone.any(1, keepdim=True))


def blanked(ids: list[int], out: list[bool], chance: Chance) -> Blanked:
    """Return a row with its spans cut out and appended in random order."""
    marks = chance.marks
    assert marks.mask is not None and marks.piece is not None
    text: list[int] = []
    cut: list[tuple[int, list[int]]] = []  # places of the blanks, and their words
    for word, hidden, before in zip(ids, out, [False, *out], strict=False):
        if not hidden:
            text.append(word)
        elif before:
            cut[-1][1].append(word)
        else:
            cut.append((len(text), [word]))
            text.append(marks.mask)
    order = torch.randperm(len(cut), generator=chance.dice).tolist()
    cut = [cut[i] for i in order]
    begin, end = marks.piece
    return Blanked(
        text,
        answer=[word for _, span in cut for word in (begin, *span)],
        targets=[word for _, span in cut for word in (*span, end)],
        places=[place for place, span in cut for _ in range(len(span) + 1)],
        inside=[i + 1 for _, span in cut for i in range(len(span) + 1)],
    )


def read(model: Any, rows: list[Blanked], first: Tensor, pad: int) -> Tensor:
    """Return the last hidden states of the answers `[B, S, H]`; texts start at `first` `[B]`."""
    device = first.device
    text = padded([row.text for row in rows], pad).to(device)
    answer = padded([row.answer for row in rows], pad).to(device)
    places = padded([row.places for row in rows], 0).to(device)
    inside = padded([row.inside for row in rows], 0).to(device)
    length = torch.tensor([len(row.text) for row in rows], device=device)
    places = torch.cat([torch.arange(text.shape[1], device=device).expand_as(text), places], 1)
    is_text = torch.arange(text.shape[1], device=device) < length[:, None]
    seen = both_ways(torch.cat([is_text, inside > 0], 1), text.shape[1])
    hidden: Tensor = model.hidden(
        model.get_input_embeddings()(torch.cat([text, answer], 1)),
        places + first[:, None],
        torch.cat([torch.zeros_like(text), inside], 1),
        attention_mask=torch.zeros(seen.shape, device=device).masked_fill(~seen, -1e9),
        use_cache=False,
    ).last_hidden_state
    return hidden[:, text.shape[1] :]
