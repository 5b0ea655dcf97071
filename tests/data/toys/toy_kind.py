"""A kind of task from outside: grades in an order, with a head and a metric of their own."""

from statistics import fmean
from typing import Unpack

import torch
from torch.nn import functional

from ptrun.readout.head import LabelHead
from ptrun.readout.heads import HEADS
from ptrun.task.dataset import Common, Dataset
from ptrun.types import Prediction


class Grades(Dataset):
    """Texts with a grade each, from 0 to `top`."""

    kind = "grades"
    answer = "grade"
    metric = "nearness"
    blank = 0

    def __init__(
        self, data_dir, variant=None, *, field: str, grade: str, top: int, **common: Unpack[Common]
    ):
        super().__init__(data_dir, variant, **common)
        self.fields, self.columns = [field], [field]
        self.grade, self.labels = grade, list(range(top + 1))

    def target(self, row, unlabelled):
        """Return the grade of a row."""
        return int(row.value(self.grade))

    def score(self, predictions, examples):
        """Return how near the grades are, 0-100."""
        far = fmean(abs(p.value - e.target) for p, e in zip(predictions, examples, strict=True))
        return {"nearness": 100 * (1 - far / self.labels[-1])}


class GradeHead(LabelHead):
    """One logit a border between two grades (proportional odds without a shared slope)."""

    def __init__(self, backbone, task, pooler="auto"):
        super().__init__(backbone, task, pooler, len(task.labels) - 1)

    def loss(self, output, batch):
        """Return the binary cross-entropy of all borders, summed over targets."""
        scores = self.scores(output, batch)
        above = batch.targets[:, None] > torch.arange(scores.shape[1], device=scores.device)
        return functional.binary_cross_entropy_with_logits(scores, above.float(), reduction="sum")

    def decode(self, output, batch):
        """Return the number of borders that are passed."""
        grades = (self.scores(output, batch) > 0).sum(dim=1).tolist()
        return [Prediction(f.id, grade) for f, grade in zip(batch.features, grades, strict=True)]


HEADS["grade"] = GradeHead
