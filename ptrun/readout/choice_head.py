"""A head that compares the options of a question, each read in a row of its own."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features, Row
from ptrun.readout.head import summed_up, texts
from ptrun.readout.pooled_head import PooledHead, Pooler
from ptrun.task.base import Task
from ptrun.task.entity_choice import GAP
from ptrun.types import Example, Prediction


class ChoiceHead(PooledHead):
    """Linear(H, 1) an option, softmax over options (P-tuning v2, multiple choice).

    A row is the first field, and the other fields with the option after them.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        super().__init__(backbone, task, 1, pooler)

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row an option; the longer text of the two is shortened first."""
        options = [self.options(e) for e in examples]
        first = [e.fields[self.task.fields[0]] for e in examples]
        before = [text for text, own in zip(first, options, strict=True) for _ in own]
        after = [option for own in options for option in own]
        rows = texts(self.backbone.tokenizer(), [before, after], self.room(room))
        places = iter(range(len(after)))
        return [
            Features(e.id, self._rows(rows, places, len(own)), self.targets(e), self.facts(e))
            for e, own in zip(examples, options, strict=True)
        ]

    def options(self, example: Example) -> list[str]:
        """Return the second text of each row."""
        before = [example.fields[field] for field in self.task.fields[1:]]
        return [" ".join([*before, option]) for option in example.fields["options"]]

    def targets(self, example: Example) -> list[int]:
        """Return the index of the right option."""
        return [example.target]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy over each example's options, summed, `[]`."""
        scores = batch.by_example(self.scores(output, batch)[:, 0])
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the index of the likeliest option of each example."""
        scores = batch.by_example(self.scores(output, batch)[:, -1])
        pairs = zip(batch.features, scores, strict=True)
        return [self.answer(features, int(own.argmax())) for features, own in pairs]

    def answer(self, features: Features, best: int) -> Prediction:
        """Return the option at an index."""
        return Prediction(features.id, best)

    def _rows(self, rows: Any, places: Iterator[int], count: int) -> list[Row]:
        return [summed_up(self.backbone, rows, i) for i in islice(places, count)]

    def facts(self, example: Example) -> dict[str, list[str]]:
        """Return what decoding needs."""
        return {}


class EntityHead(ChoiceHead):
    """Linear(H, 2) an entity in the gap of a query, right or wrong; the rightest is the answer.

    As P-tuning v2 reads ReCoRD: each entity is a binary example of its own.
    """

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        PooledHead.__init__(self, backbone, task, 2, pooler)

    def options(self, example: Example) -> list[str]:
        """Return the query with each entity in its gap."""
        return [example.fields["query"].replace(GAP, e) for e in example.fields["entities"]]

    def targets(self, example: Example) -> list[int]:
        """Return 1 for each entity that is right."""
        return [int(entity in example.target) for entity in example.fields["entities"]]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy summed over entities, `[]`."""
        return PooledHead.loss(self, output, batch)

    def answer(self, features: Features, best: int) -> Prediction:
        """Return the entity at an index."""
        return Prediction(features.id, features.facts["entities"][best])

    def facts(self, example: Example) -> dict[str, list[str]]:
        """Return the entities."""
        return {"entities": list(example.fields["entities"])}
