"""Blank infilling (Du et al. 2022, §2.1): spans are cut out of the text and appended to it.

    [CLS] A film by [MASK] , and [MASK] one . <|endoftext|> | <sop> a good | <sop> Ann Lee
      0   1  2   3    4    5  6     7    8   9      10      |   7    7   7 |   4    4   4
      0   0  0   0    0    0  0     0    0   0       0      |   1    2   3 |   1    2   3

The two lines below the tokens are their positions. A token of a span has the place of its [MASK],
and its number 1, 2, ... in the span. All tokens attend to the text; a span also attends to the
spans before it, whose order is random. The targets are `a good <eop> Ann Lee <eop>`.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.infilling import both_ways
from ptrun.pretrain.objective import IGNORED, Chance, Objective, Scored, generated, spans
from ptrun.pretrain.rows import Batch, padded


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
