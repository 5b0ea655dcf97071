"""Scoring written candidates: how likely the head finds each one's words in the pattern's gap.

One row a candidate, spelled as the pattern writes it where the pattern lists options, with as many
masks as it has tokens.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.cloze import Cloze
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Objective = Literal["margin", "softmax", "as_scored"]
Scored = Literal["sum", "mean"]


class Candidates(Cloze):
    """The candidate with the likeliest words: an option of a question, an entity of a passage.

    A masked backbone reads all tokens at once while it learns; to answer it fills the masks one by
    one, the likeliest right token first (PET). Other families read each token after those before.
    Departs from the released code of P-tuning in one thing: there both options are learned in one
    row, whose masks are those of the longer one; here each learns in the row it is answered in.

    Args:
        backbone, task, pvp: as in `Cloze`.
        objective: `margin` is P-tuning's for COPA, the mean over wrong candidates of
            max(0, 1 + CE(right) - CE(wrong)), CE the mean over tokens; here of one example, where
            the released code takes the mean over the batch first. `softmax` is cross-entropy over
            candidates, each scored by the mean over its tokens; `as_scored` the same over what
            `scored` says, so that the very numbers learn that answer (GLM, by the sum).
        scored: by what an answer is chosen: the `sum` of the log-probabilities of its tokens (PET,
            P-tuning), which favours short ones, or their `mean`. A blank infiller's candidates end
            in <|endofpiece|>, which counts as a token.
        swapped: also learn from each example with its options in reverse order (P-tuning and PET
            on COPA, whose pattern writes both out).
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        objective: Objective = "margin",
        scored: Scored = "sum",
        swapped: bool = False,
    ):
        super().__init__(backbone, task, pvp)
        self.objective, self.scored, self.swapped = objective, scored, swapped

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the examples that are learned from, swapped ones after them."""
        more = examples if self.swapped and self.task.kind == "choice" else []
        return [*examples, *map(_reversed, more)]

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return one row a candidate."""
        return [self._features(example, room) for example in examples]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the objective summed over examples, `[]`."""
        terms = [self._term(f, s) for f, s in self._scored(output, batch)]
        return torch.stack(terms).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest candidate of each example, or what to read before it is known."""
        logs = batch.by_example(self._log_probabilities(output, batch))
        if self.backbone.family == "masked":
            return [self._fill(f, own) for f, own in zip(batch.features, logs, strict=True)]
        return [self._best(f, _sums(f, own)) for f, own in zip(batch.features, logs, strict=True)]

    def _scored(self, output: BackboneOutput, batch: Batch) -> list[tuple[Features, Tensor]]:
        logs = batch.by_example(self._log_probabilities(output, batch))
        mean = self.objective != "as_scored" or self.scored == "mean"
        score = _means if mean else _sums
        return [(f, score(f, own)) for f, own in zip(batch.features, logs, strict=True)]

    def _term(self, features: Features, scores: Tensor) -> Tensor:
        """Return one example's loss; of several right candidates each is one against the wrong.

        Where none is right (entities that are no answer), or none wrong, nothing is learned.
        """
        right = torch.tensor([i in features.facts["right"] for i in range(len(scores))])
        right = right.to(scores.device)
        good, bad = scores[right], scores[~right]
        if not (len(good) and len(bad)):
            return 0 * scores.sum()
        if self.objective != "margin":
            rivals = torch.cat([good[:, None], bad.expand(len(good), -1)], dim=1)
            return -rivals.log_softmax(dim=1)[:, 0].mean()
        return (1 - good[:, None] + bad[None, :]).clamp(min=0).mean()

    def _log_probabilities(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-probability of each token read, `[K]`."""
        assert output.logits is not None
        words = [word for f in batch.features for own in f.facts["words"] for word in own]
        index = torch.tensor(words, device=output.logits.device)
        return -functional.cross_entropy(output.logits.float(), index, reduction="none")

    def _fill(self, features: Features, logs: Tensor) -> Prediction | Features:
        """Fill each row's likeliest mask; answer when none is left."""
        words, totals = features.facts["words"], list(features.facts["totals"])
        rows: list[Row] = []
        left: list[list[int]] = []
        logs_of = torch.split(logs, [len(own) for own in words])
        for i, (row, own, log) in enumerate(zip(features.rows, words, logs_of, strict=True)):
            if not own:
                rows.append(row)
                left.append([])
                continue
            best = int(log.argmax())
            totals[i] += float(log[best])
            rows.append(_filled(row, best, own[best]))
            left.append([word for place, word in enumerate(own) if place != best])
        facts = {**features.facts, "words": left, "totals": totals}
        if any(left):
            return replace(features, rows=rows, facts=facts)
        return self._best(features, torch.tensor(totals))

    def _best(self, features: Features, sums: Tensor) -> Prediction:
        """Return the candidate that scores best, from the sums of its tokens' log-probabilities."""
        sizes = torch.tensor(features.facts["sizes"], device=sums.device)
        scores = sums / sizes if self.scored == "mean" else sums
        return Prediction(features.id, features.facts["answers"][int(scores.argmax())])

    def _features(self, example: Example, room: int) -> Features:
        texts, right = _candidates(example)
        spelled = [self.pvp.pattern.filtered("options", text) for text in texts]
        end = [] if self.end is None else [self.end]  # a target like all others
        words = [[*self.encoder.spelling.answer(text), *end] for text in spelled]
        rows = [self._row(example, own, room) for own in words]
        keys = list(range(len(texts))) if "options" in example.fields else texts
        facts = {"words": words, "right": right, "answers": keys}
        facts |= {"totals": [0.0] * len(texts), "sizes": [len(own) for own in words]}
        return Features(example.id, rows, [0], facts)

    def _row(self, example: Example, words: list[int], room: int) -> Row:
        if self.backbone.family == "masked":
            return self.row(self.pieces(example), room, len(words))
        made = self.row(self.pieces(example), self.room(room) - len(words))
        at = made.reads[-1]
        reads = list(range(at, at + len(words)))
        if made.decoder is not None:
            return replace(made, reads=reads, decoder=[*made.decoder, *words[:-1]])
        return Row([*made.ids[: at + 1], *words[:-1]], None, reads, made.softs)


def _candidates(example: Example) -> tuple[list[str], list[int]]:
    """Return the candidates of an example as texts, and which are right."""
    if "entities" in example.fields:
        entities = list(dict.fromkeys(example.fields["entities"]))
        return entities, [i for i, entity in enumerate(entities) if entity in example.target]
    return list(example.fields["options"]), [example.target]


def _reversed(example: Example) -> Example:
    options = list(example.fields["options"])
    fields = {**example.fields, "options": options[::-1]}
    return Example(f"{example.id}-swapped", fields, len(options) - 1 - example.target)


def _sums(features: Features, logs: Tensor) -> Tensor:
    """Return the summed log-probabilities of each candidate's tokens."""
    sizes = [len(own) for own in features.facts["words"]]
    return torch.stack([own.sum() for own in torch.split(logs, sizes)])


def _means(features: Features, logs: Tensor) -> Tensor:
    return _sums(features, logs) / torch.tensor(features.facts["sizes"], device=logs.device)


def _filled(row: Row, read: int, word: int) -> Row:
    """Return a row with one of its masks filled, which is not read any more."""
    at = row.reads[read]
    ids = [word if place == at else id_ for place, id_ in enumerate(row.ids)]
    return replace(row, ids=ids, reads=[place for place in row.reads if place != at])
