"""What every method is: inputs for the backbone, a read-out, and what it learns."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, BackboneOutput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.base import Batch, Features
from ptrun.readout.head import Pooler, head_for
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_LEAST_TOKENS = 8  # fewer than this after the prompt, and no example fits


class Method(nn.Module):
    """A prompt, a read-out and a scope; it never calls the backbone, the engine does.

    Sub-classes say what they add in `inputs`, and in `prompt_tokens` and `prompt_positions` how
    much of the backbone's length that takes.
    """

    kinds: ClassVar[Sequence[str]] = ("classification", "tagging")
    tunes_backbone: ClassVar[bool] = False

    def __init__(self, backbone: PretrainedBackbone, task: Task, pooler: Pooler = "auto"):
        super().__init__()
        self._backbone = [backbone]  # a list keeps the backbone out of the module tree
        self.task = task
        self.readout = head_for(backbone, task, pooler)

    @property
    def backbone(self) -> PretrainedBackbone:
        """The backbone this method prompts."""
        return self._backbone[0]

    @property
    def prompt_positions(self) -> int:
        """How many of the backbone's positions the prompt takes from the text."""
        return 0

    def room(self) -> int:
        """Return the longest input in tokens.

        Raises:
            UserError: the prompt leaves no room for text.
        """
        positions = self.backbone.shape.positions
        left = positions - self.prompt_positions
        if left < _LEAST_TOKENS:
            raise UserError(
                f"method.length is {self.prompt_positions}, but {self.backbone.name} has "
                f"{positions} positions; use method.length={positions - _LEAST_TOKENS} or less."
            )
        return left

    def encode(self, examples: Sequence[Example]) -> list[Features]:
        """Return one row of tokens an example."""
        return self.readout.encode(examples, self.room())

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return what the backbone is given for a batch: here, the text alone."""
        text = BackboneInput(ids=batch.ids, mask=batch.mask, types=batch.types, keys=batch.keys)
        return self.readout.ask(text, batch.reads)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the summed loss `[]` of a batch, one term a target."""
        return self.readout.loss(output, batch)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction]:
        """Return an answer for each row of a batch."""
        return self.readout.decode(output, batch)

    def learned(self) -> dict[str, nn.Parameter]:
        """Return what is optimised, counted and saved."""
        return dict(self.named_parameters())

    def learned_parameters(self) -> dict[str, int]:
        """Return the learned parameters by part: `prompt`, `head`, `backbone`, and their total."""
        counts = {"prompt": 0, "head": 0, "backbone": 0}
        for name, parameter in self.learned().items():
            part = {"readout": "head", "backbone": "backbone"}.get(name.split(".")[0], "prompt")
            counts[part] += parameter.numel()
        return {**counts, "total": sum(counts.values())}

    def exported(self) -> dict[str, Tensor]:
        """Return the tensors that suffice to answer with: reparameterizations folded."""
        return {name: parameter.detach() for name, parameter in self.learned().items()}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Take exported tensors back.

        Raises:
            UserError: a tensor is missing.
        """
        with torch.no_grad():
            for name, parameter in self.learned().items():
                if name not in tensors:
                    raise UserError(f"the saved prompt has no tensor {name}.")
                parameter.copy_(tensors[name])


def check_pair(method: type[Method], name: str, kind: str, task: str) -> None:
    """Refuse a method on a kind of task it cannot answer, before anything is loaded.

    Raises:
        UserError: names both, and what is allowed.
    """
    if kind not in method.kinds:
        raise UserError(
            f"method={name} cannot answer task={task}, which is {kind}; "
            f"it answers: {', '.join(method.kinds)}."
        )
