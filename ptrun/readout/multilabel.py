"""Several labels a row: a head, or words in a gap. Each label has a probability of its own.

The loss is binary cross-entropy, its mean over rows and labels. A row has the labels whose
probability is above a threshold: 0.5, until thresholds are chosen on dev.
"""

from abc import abstractmethod
from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput, on_device
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.pattern.pattern import PVP
from ptrun.readout.base import Batch, Features, Readout, Thresholds
from ptrun.readout.head import PooledHead, Shares
from ptrun.readout.label_words import LabelWords
from ptrun.task.dataset import Task
from ptrun.task.multilabel import NONE, best_threshold, in_order, indicators, probabilities
from ptrun.types import Example, Prediction

THRESHOLDS = "readout.thresholds"
"""The name of saved thresholds."""


class Several(Readout):
    """What a head and words share: the loss, and the decision by thresholds.

    Attributes of a subclass:
        task: its `labels` are C.
        thresholds: how they are chosen on dev: `one` for all labels, by micro F1, one for `each`
            label, by its F1, or none: `half` is 0.5.
        chosen: the thresholds, `[C]`; None is 0.5.
        weights: of a row that has the label, for each label, or None.
    """

    settles = True
    task: Task
    thresholds: Thresholds = "one"
    chosen: Tensor | None = None

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return binary cross-entropy summed over rows and labels, `[]`."""
        logits = self.logits(output, batch)
        weight = on_device(self.weights, logits.device, torch.float) if self.weights else None
        targets = batch.targets.view_as(logits)
        return functional.binary_cross_entropy_with_logits(
            logits, targets, reduction="sum", pos_weight=weight
        )

    weighed = loss

    @abstractmethod
    def logits(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds of each label, `[N, C]`."""

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the labels of each example, and the probabilities of all."""
        shares = self.logits(output, batch).sigmoid().cpu()
        by_label = (Shares(self.task.labels, row) for row in shares)
        return [
            self._decided(Prediction(f.id, [], probabilities=by_label))
            for f, by_label in zip(batch.features, by_label, strict=True)
        ]

    def settle(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> list[Prediction]:
        """Choose the thresholds on dev, and return its predictions by them."""
        if self.thresholds != "half" and predictions:
            labels = self.task.labels
            shares = probabilities(labels, predictions)
            golds = indicators(labels, (e.target for e in examples))
            limits = [best_threshold(shares.ravel(), golds.ravel())] * len(labels)
            if self.thresholds == "each":
                limits = [best_threshold(*pair) for pair in zip(shares.T, golds.T, strict=True)]
            self.chosen = torch.tensor(limits)
        return [self._decided(prediction) for prediction in predictions]

    def settled(self) -> dict[str, Tensor]:
        """Return the thresholds, by the name they are saved under."""
        return {} if self.chosen is None else {THRESHOLDS: self.chosen}

    def recall(self, tensors: dict[str, Tensor]) -> None:
        """Take the thresholds of a saved prompt, if it has any."""
        self.chosen = tensors.get(THRESHOLDS)

    def weigh(self, examples: Sequence[Example]) -> None:
        """Set the weights of rows that have a label: the others over these."""
        if self.class_weights == "balanced":
            has = indicators(self.task.labels, (e.target for e in examples)).sum(axis=0)
            self.weights = [(len(examples) - n) / n if n else 1.0 for n in has.tolist()]

    def targets(self, example: Example) -> list[float]:
        """Return 1.0 for each label that a row has, else 0.0."""
        return [float(label in example.target) for label in self.task.labels]

    def _decided(self, prediction: Prediction) -> Prediction:
        shares: Any = prediction.probabilities
        limits = [0.5] * len(shares) if self.chosen is None else self.chosen.tolist()
        pairs = zip(shares.items(), limits, strict=True)
        above = [label for (label, share), limit in pairs if share > limit]
        return replace(prediction, value=in_order(above, self.task.labels))


class LabelsHead(Several, PooledHead):
    """Linear(H, C) on the vector of a text or of a pair of texts, and a sigmoid for each label.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=fine_tuning", "task=pocket_two_topics")
    >>> method.readout.logits(output, batch).shape  # [B, C]
    torch.Size([2, 8])
    """

    keys: ClassVar[Set[str]] = {*PooledHead.keys, "thresholds"}
    logits = PooledHead.scores


class LabelsWords(Several, LabelWords):
    """The words of each label at the mask, against the words of no label.

    The log-odds of a label are its score minus that of `ptrun.task.multilabel.NONE`.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=lora", "readout=verbalizer", "task=pocket_two_topics")
    >>> method.readout.logits(output, batch).shape  # [B, C]
    torch.Size([2, 8])
    """

    keys: ClassVar[Set[str]] = {"literal_sep", "sentinel", "class_weights", "thresholds"}

    def __init__(self, backbone: PretrainedBackbone, task: Task, pvp: PVP, options: Any):
        LabelWords.__init__(self, backbone, task, pvp, options)
        self.thresholds = options.thresholds

    def logits(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the log-odds of each label, `[N, C]`."""
        scores = dict(zip(self.tokens.labels, self._scores(output, batch).T, strict=True))
        return torch.stack([scores[label] - scores[NONE] for label in self.task.labels], dim=1)

    def _features(self, example: Example, room: int) -> Features:
        row = self.row(self.pieces(example), room, self.tokens.masks)
        if self.decodes:
            row = replace(row, reads=row.reads[-1:])
        return Features(example.id, [row], self.targets(example), {"options": 0})
