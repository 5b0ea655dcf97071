"""A head that compares the options of a question, each read in a row of its own."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ptrun.backbone.base import BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.readout.base import Batch, Features
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
        return [self._features(e, self.room(room)) for e in examples]

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
        pairs = zip(scores, batch.targets, strict=True)
        return torch.stack([functional.cross_entropy(own, target) for own, target in pairs]).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the index of the likeliest option of each example."""
        scores = batch.by_example(self.scores(output, batch)[:, -1])
        pairs = zip(batch.features, scores, strict=True)
        return [self.answer(features, int(own.argmax())) for features, own in pairs]

    def answer(self, features: Features, best: int) -> Prediction:
        """Return the option at an index."""
        return Prediction(features.id, best)

    def _features(self, example: Example, room: int) -> Features:
        options = self.options(example)
        first = [example.fields[self.task.fields[0]]] * len(options)
        rows = texts(self.backbone.tokenizer(), [first, options], room)
        own = [summed_up(self.backbone, rows, i) for i in range(len(options))]
        return Features(example.id, own, self.targets(example), self.facts(example))

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
        return functional.cross_entropy(self.scores(output, batch), batch.targets, reduction="sum")

    def answer(self, features: Features, best: int) -> Prediction:
        """Return the entity at an index."""
        return Prediction(features.id, features.facts["entities"][best])

    def facts(self, example: Example) -> dict[str, list[str]]:
        """Return the entities."""
        return {"entities": list(example.fields["entities"])}
