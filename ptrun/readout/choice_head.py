"""A head that compares the options of a question, each read in its own row."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from ptrun.backbone.base import BackboneOutput
from ptrun.readout.base import Batch, Features
from ptrun.readout.head import labelled, likeliest
from ptrun.readout.pooled_head import PooledHead
from ptrun.task.entity_choice import GAP
from ptrun.types import Example, Prediction


class ChoiceHead(PooledHead):
    """Linear(H, 1) for each option, softmax over options (P-tuning v2, multiple choice).

    A row pairs the first field with a second text: the other fields, then the option.
    """

    outputs = 1

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Tokenize one row for each option; the longer text of the pair is shortened first."""
        options = [self.options(e) for e in examples]
        firsts = [e.fields[self.task.fields[0]] for e in examples]
        before = [text for text, own in zip(firsts, options, strict=True) for _ in own]
        rows = iter(self.rows([before, [option for own in options for option in own]], room))
        return [
            Features(
                e.id, list(islice(rows, len(own))), self.targets(e), {"values": self.values(e)}
            )
            for e, own in zip(examples, options, strict=True)
        ]

    def options(self, example: Example) -> list[str]:
        """Return the second text of each row."""
        before = [example.fields[field] for field in self.task.fields[1:]]
        return [" ".join([*before, option]) for option in example.fields["options"]]

    def targets(self, example: Example) -> list[int]:
        """Return the index of the right option."""
        return [example.target]

    def values(self, example: Example) -> list[Any]:
        """Return the prediction of each option: its index."""
        return list(range(len(example.fields["options"])))

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return cross-entropy over each example's options, summed, `[]`."""
        scores = batch.rows_by_example(self.scores(output, batch)[:, 0])
        padded = pad_sequence(scores, batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(padded, batch.targets, reduction="sum")

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the likeliest option of each example."""
        scores = batch.rows_by_example(self.scores(output, batch)[:, -1].cpu())
        return [self._chosen(f, own) for f, own in zip(batch.features, scores, strict=True)]

    def _chosen(self, features: Features, scores: Tensor) -> Prediction:
        (best,), (shares,) = likeliest(scores[None])
        return labelled(features.id, best, shares, features.facts["values"])


class EntityHead(ChoiceHead):
    """Linear(H, 2) for each entity in the gap of a query: wrong or right.

    The prediction is the entity with the highest score for right. P-tuning v2 reads ReCoRD this
    way: each entity is its own binary example.
    """

    outputs = 2
    loss = PooledHead.loss  # cross-entropy summed over entities

    def _chosen(self, features: Features, scores: Tensor) -> Prediction:
        return Prediction(features.id, features.facts["values"][int(scores.argmax())])

    def options(self, example: Example) -> list[str]:
        """Return the query with each entity in its gap."""
        return [example.fields["query"].replace(GAP, e) for e in example.fields["entities"]]

    def targets(self, example: Example) -> list[int]:
        """Return 1 for each right entity, 0 for the others."""
        return [int(entity in example.target) for entity in example.fields["entities"]]

    def values(self, example: Example) -> list[Any]:
        """Return the entities."""
        return list(example.fields["entities"])
