"""One head for each of several data sets that share a prompt (MPT-2)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneOutput, Positions, on_device
from ptrun.readout.base import Batch, Features, Readout
from ptrun.task.multi import member_of
from ptrun.types import Example, Prediction


class MultiHead(nn.Module, Readout):
    """Dispatches examples to the head of their data set, which `facts["set"]` names.

    Args:
        heads: read-outs by name of data set, all of hidden states.

    >>> from ptrun.testing import read
    >>> options = "method=ptuning_v2", "readout.pooler=none", "task=pocket_multi"
    >>> method, batch, output = read(*options)
    >>> list(method.readout.heads)
    ['pocket_ner', 'pocket_srl', 'pocket_qa', 'pocket_topics']
    """

    def __init__(self, heads: Mapping[str, Readout]):
        super().__init__()
        self.heads = nn.ModuleDict(heads)  # type: ignore[arg-type]
        self.reads_decoder = any(head.reads_decoder for head in heads.values())

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the features of each example, from the head of its data set."""
        owners = [member_of(example) for example in examples]
        parts = {
            name: iter(head.encode([e for e in examples if member_of(e) == name], room))
            for name, head in self._heads(owners).items()
        }
        encoded = [(owner, next(parts[owner])) for owner in owners]
        return [replace(f, facts={**f.facts, "set": owner}) for owner, f in encoded]

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the sum of the heads' losses, `[]`."""
        heads = self._heads(_sets(batch)).items()
        return torch.stack([head.loss(*_of(name, output, batch)) for name, head in heads]).sum()

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return the predictions, each from the head of its data set."""
        heads = self._heads(_sets(batch)).items()
        parts = {name: iter(head.decode(*_of(name, output, batch))) for name, head in heads}
        return [next(parts[name]) for name in _sets(batch)]

    def _heads(self, names: Sequence[str]) -> dict[str, Readout]:
        """Return the heads of these data sets, in the order of `heads`."""
        return {name: head for name, head in self.heads.items() if name in names}  # type: ignore[misc]


def _sets(batch: Batch) -> list[str]:
    return [f.facts["set"] for f in batch.features]


def _of(name: str, output: BackboneOutput, batch: Batch) -> tuple[BackboneOutput, Batch]:
    """Return the features of one data set with their reads, targets and states; rows stay."""
    features = [f for f in batch.features if f.facts["set"] == name]
    flags = [(f, f.facts["set"] == name) for f in batch.features]
    reads = _places([belongs for f, belongs in flags for row in f.rows for _ in row.reads], batch)
    targets = batch.targets[_places([belongs for f, belongs in flags for _ in f.targets], batch)]
    if not any(isinstance(target, float) for f in features for target in f.targets):
        targets = targets.long()  # another data set of the batch may have numbers
    assert output.hidden is not None
    positions = Positions(batch.reads.rows[reads], batch.reads.columns[reads])
    part = replace(batch, features=features, reads=positions, targets=targets)
    return BackboneOutput(hidden=output.hidden[reads]), part


def _places(flags: list[bool], batch: Batch) -> Tensor:
    """Return where flags are true; an index by a mask would make the host wait for its size."""
    return on_device([place for place, flag in enumerate(flags) if flag], batch.ids.device)
