"""One head for each of several data sets, over one prompt (MPT-2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, BackboneOutput, Positions
from ptrun.readout.base import Batch, Features, Readout
from ptrun.task.multi import member_of
from ptrun.types import Example, Prediction


class MultiHead(nn.Module):
    """Dispatches examples to the head of their data set; `facts["set"]` says which.

    Args:
        heads: read-outs by name of data set, all of hidden states.
    """

    def __init__(self, heads: Mapping[str, Readout]):
        super().__init__()
        self.heads = nn.ModuleDict(heads)  # type: ignore[arg-type]
        self.reads_decoder = any(head.reads_decoder for head in heads.values())

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the rows of each example, made by its own head."""
        owners = [member_of(example) for example in examples]
        made: dict[int, Features] = {}
        for name, head in self._heads().items():
            places = [i for i, owner in enumerate(owners) if owner == name]
            own = head.encode([examples[i] for i in places], room) if places else []
            for place, features in zip(places, own, strict=True):
                made[place] = replace(features, facts={**features.facts, "set": name})
        return [made[i] for i in range(len(examples))]

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request hidden states."""
        return replace(inputs, hidden_at=at)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of the heads' losses, `[]`."""
        terms = [
            head.loss(*_of(name, output, batch))
            for name, head in self._heads().items()
            if any(f.facts["set"] == name for f in batch.features)
        ]
        return torch.stack(terms).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return each head's answers to its own examples."""
        answers: dict[str, list[Prediction | Features]] = {}
        for name, head in self._heads().items():
            if any(f.facts["set"] == name for f in batch.features):
                answers[name] = head.decode(*_of(name, output, batch))[::-1]
        return [answers[f.facts["set"]].pop() for f in batch.features]

    def _heads(self) -> dict[str, Readout]:
        return dict(self.heads.items())  # type: ignore[arg-type]


def _of(name: str, output: BackboneOutput, batch: Batch) -> tuple[BackboneOutput, Batch]:
    """Return the features of one data set, their reads, targets and states; rows stay."""
    mine = [f.facts["set"] == name for f in batch.features]
    pairs = list(zip(batch.features, mine, strict=True))
    reads = _mask([own for f, own in pairs for row in f.rows for _ in row.reads], batch)
    targets = _mask([own for f, own in pairs for _ in f.targets], batch)
    assert output.hidden is not None
    part = replace(
        batch,
        features=[f for f, own in pairs if own],
        reads=Positions(batch.reads.rows[reads], batch.reads.columns[reads]),
        targets=_exact(batch.targets[targets], [f for f, own in pairs if own]),
    )
    return BackboneOutput(hidden=output.hidden[reads]), part


def _mask(flags: list[bool], batch: Batch) -> Tensor:
    return torch.tensor(flags, dtype=torch.bool, device=batch.ids.device)


def _exact(targets: Tensor, features: Sequence[Features]) -> Tensor:
    """Return indices as such again where another data set of the batch has numbers."""
    numbers = any(isinstance(target, float) for f in features for target in f.targets)
    return targets if numbers else targets.long()
