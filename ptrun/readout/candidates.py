"""Scores written candidates by the probability of their words in the pattern's gap.

Each candidate has one row, with as many masks as the candidate has tokens. Where the pattern lists
options, a candidate is spelled as in that list.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.prompt.pvp import PVP
from ptrun.readout.base import Batch, Features, Row, word_logits
from ptrun.readout.cloze import Cloze
from ptrun.readout.head import row_limit
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

Objective = Literal["margin", "batch_margin", "softmax", "as_scored"]
Scored = Literal["sum", "mean"]


class Candidates(Cloze):
    """The candidate with the likeliest words: an option of a question, an entity of a passage.

    In training, a masked backbone predicts all tokens at once; in evaluation it fills one mask at a
    time, the likeliest right token first (PET). Other families read each token after those before.
    Each option is trained in its own row.

    Args:
        backbone, task, pvp, literal_sep: as in `Cloze`.
        objective: `margin` is P-tuning's for COPA: the mean over wrong candidates of
            max(0, 1 + CE(right) - CE(wrong)), CE the mean over tokens, for each example.
            `batch_margin` is that of its released code (`ptrun.readout.one_row`). `softmax` is
            cross-entropy over candidates, each scored by its mean. `as_scored` uses `scored`
            instead (GLM: the sum).
        scored: the `sum` of a candidate's log-probabilities (PET, P-tuning), which favours short
            ones, or their `mean`. A blank infiller's final <|endofpiece|> counts as a token.
        swapped: also train on each example with its options in reverse order (P-tuning and PET
            on COPA, whose pattern writes both out).
    """

    teaches = True

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        pvp: PVP,
        *,
        objective: Objective = "margin",
        scored: Scored = "sum",
        swapped: bool = False,
        literal_sep: bool = False,
    ):
        super().__init__(backbone, task, pvp, literal_sep=literal_sep)
        self.objective, self.scored, self.swapped = objective, scored, swapped

    def teaching(self, examples: Sequence[Example], room: int) -> list[Example]:
        """Return the training examples, followed by the swapped ones."""
        more = examples if self.swapped and self.task.answer == "option" else []
        return [*examples, *map(_reversed, more)]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the objective summed over examples, `[]`."""
        score = _sums if (self.objective, self.scored) == ("as_scored", "sum") else _means
        pairs = batch.pairs(self._log_probabilities(output, batch))
        return torch.stack([self._term(f, score(f, logs)) for f, logs in pairs]).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest candidate of each example, or rows with one more mask filled."""
        pairs = batch.pairs(self._log_probabilities(output, batch).cpu())
        if self.backbone.architecture.fills_masks:
            return [self._fill(f, logs) for f, logs in pairs]
        return [self._best(f, _sums(f, logs)) for f, logs in pairs]

    def _term(self, features: Features, scores: Tensor) -> Tensor:
        """Return one example's loss: the mean over right candidates, each against all wrong ones.

        It is 0 if no candidate is right or none is wrong.
        """
        right = features.facts["right"]
        rows = list(enumerate(scores.unbind()))
        if not 0 < sum(i in right for i, _ in rows) < len(rows):
            return 0 * scores.sum()
        good = torch.stack([score for i, score in rows if i in right])
        bad = torch.stack([score for i, score in rows if i not in right])
        if self.objective != "margin":
            rivals = torch.cat([good[:, None], bad.expand(len(good), -1)], dim=1)
            return -rivals.log_softmax(dim=1)[:, 0].mean()
        return (1 - good[:, None] + bad[None, :]).clamp(min=0).mean()

    def _log_probabilities(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-probability of each candidate token, `[K]`."""
        logits = word_logits(output)
        words = [word for f in batch.features for own in f.facts["words"] for word in own]
        index = on_device(words, logits.device)
        return -functional.cross_entropy(logits, index, reduction="none")

    def _fill(self, features: Features, logs: Tensor) -> Prediction | Features:
        """Fill each row's likeliest mask; return the prediction when no mask is left."""
        words, totals = features.facts["words"], list(features.facts["totals"])
        rows, left = [], []
        split = torch.split(logs, [len(tokens) for tokens in words])
        for i, (row, tokens, log) in enumerate(zip(features.rows, words, split, strict=True)):
            if tokens:
                best = int(log.argmax())
                totals[i] += float(log[best])
                row = row.filled(best, tokens[best])
                tokens = tokens[:best] + tokens[best + 1 :]
            rows.append(row)
            left.append(tokens)
        if any(left):
            facts = {**features.facts, "words": left, "totals": totals}
            return replace(features, rows=rows, facts=facts)
        return self._best(features, torch.tensor(totals))

    def _best(self, features: Features, sums: Tensor) -> Prediction:
        """Return the candidate with the best score, from sums of log-probabilities."""
        sizes = torch.tensor(features.facts["sizes"], device=sums.device)
        scores = sums / sizes if self.scored == "mean" else sums
        return Prediction(features.id, features.facts["answers"][int(scores.argmax())])

    def _features(self, example: Example, room: int) -> Features:
        texts, right = _candidates(example)
        spelled = [self.pvp.pattern.filtered("options", text) for text in texts]
        end = [] if self.end is None else [self.end]  # a target like all others
        words = [[*self.encoder.spelling.answer(text), *end] for text in spelled]
        rows = [self._row(example, tokens, room) for tokens in words]
        keys = list(range(len(texts))) if "options" in example.fields else texts
        facts = {"words": words, "right": right, "answers": keys}
        facts |= {"totals": [0.0] * len(texts), "sizes": [len(tokens) for tokens in words]}
        return Features(example.id, rows, [0], facts)

    def _row(self, example: Example, words: list[int], room: int) -> Row:
        if self.backbone.architecture.fills_masks:
            return self.row(self.pieces(example), room, len(words))
        row = self.row(self.pieces(example), row_limit(self.task, room) - len(words))
        at = row.reads[-1]
        reads = list(range(at, at + len(words)))
        if row.decoder is not None:
            return replace(row, reads=reads, decoder=[*row.decoder, *words[:-1]])
        return Row([*row.ids[: at + 1], *words[:-1]], None, reads, row.softs)


def _candidates(example: Example) -> tuple[list[str], list[int]]:
    """Return the candidates of an example as texts, and the indices of the right ones."""
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
    sizes = [len(tokens) for tokens in features.facts["words"]]
    return torch.stack([part.sum() for part in torch.split(logs, sizes)])


def _means(features: Features, logs: Tensor) -> Tensor:
    return _sums(features, logs) / on_device(features.facts["sizes"], logs.device)
