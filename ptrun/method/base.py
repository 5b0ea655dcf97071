"""What every method is: inputs for the backbone, a read-out, and what it learns."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, BackboneOutput, DecoderInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout import choose
from ptrun.readout.base import Batch, Features
from ptrun.readout.reading import Reading
from ptrun.task.base import Task
from ptrun.types import Example, Prediction

_LEAST_TOKENS = 8  # fewer than this after the prompt, and no example fits
_TOGETHER = 512  # examples that are tokenized at once


class Method(nn.Module):
    """A prompt, a read-out and a scope; it never calls the backbone, the engine does.

    Sub-classes say what they add in `inputs`, and in `prompt_positions` how much of the backbone's
    length that takes. `soft` says whether their patterns have learned vectors in them, `readouts`
    which read-outs they have, the first if none is named.
    """

    soft: ClassVar[bool] = False
    readouts: ClassVar[Sequence[str]] = tuple(choose.KINDS)
    families: ClassVar[Sequence[str]] = ("masked", "causal", "seq2seq", "infilling")
    tunes_backbone: bool = False

    def __init__(self, backbone: PretrainedBackbone, task: Task, **reading: Unpack[Reading]):
        super().__init__()
        self._backbone = [backbone]  # a list keeps the backbone out of the module tree
        self.task = task
        reading.setdefault("readout", self.readouts[0])  # type: ignore[typeddict-item]
        self.readout = choose.readout_for(backbone, task, reading, soft=self.soft)

    @property
    def backbone(self) -> PretrainedBackbone:
        """The backbone this method prompts."""
        return self._backbone[0]

    @property
    def alone(self) -> bool:
        """Whether the backbone can serve no other member meanwhile: it is tuned, or changed."""
        return self.tunes_backbone

    def placed(self) -> None:
        """Connect to the backbone, which is loaded and, like this method, on its device."""

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
        """Return the rows of tokens of each example, some hundred at a time: memory is bounded."""
        room = self.room()
        parts = (examples[i : i + _TOGETHER] for i in range(0, len(examples), _TOGETHER))
        return [features for part in parts for features in self.readout.encode(part, room)]

    @classmethod
    def learns_vectors(cls, node: Mapping[str, Any]) -> bool:
        """Return whether, configured so, its `prompt` is the `InputVectors` themselves.

        Only those can begin as words.
        """
        return False

    def unfolded(self, exported: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Return what to learn on from, given an exported prompt of the same form.

        None: an encoder makes the prompt, and what it puts out does not tell its parameters.
        """
        return exported

    @classmethod
    def told(cls, node: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what of a configuration can change a number: contents in place of paths."""
        return node

    def unprepared(self, features: Sequence[Features], *, training: bool) -> Sequence[Features]:
        """Return the examples that `prepare` should see before they are read; here, none."""
        return ()

    def prepare(self, batch: Batch) -> None:
        """Look at examples once, before all reading; the engine decides which share a batch."""

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return what the backbone is given for a batch: here, the text alone."""
        decoder = None
        if batch.decoder is not None and batch.decoder_mask is not None:
            decoder = DecoderInput(mask=batch.decoder_mask, ids=batch.decoder)
        text = BackboneInput(
            ids=batch.ids, mask=batch.mask, types=batch.types, keys=batch.keys, decoder=decoder
        )
        return self.readout.request(text, batch.reads)

    def loss(self, output: BackboneOutput, batch: Batch) -> Tensor:
        """Return the summed loss `[]` of a batch, one term a target."""
        return self.readout.loss(output, batch)

    def decode(self, output: BackboneOutput, batch: Batch) -> list[Prediction | Features]:
        """Return an answer for each example of a batch, or what to read before it is known."""
        return self.readout.decode(output, batch)

    def learned(self) -> dict[str, nn.Parameter]:
        """Return what is optimised, counted and saved; a prompt of no vectors is not."""
        return {name: p for name, p in self.named_parameters() if p.numel()}

    def learned_parameters(self) -> dict[str, int]:
        """Return the learned parameters by part: `prompt`, `head`, `backbone`, and their total.

        Of a backbone that several ranks hold together, all ranks' are counted.
        """
        counts = {"prompt": 0, "head": 0, "backbone": 0}
        for name, parameter in self.learned().items():
            part = {"readout": "head", "backbone": "backbone"}.get(name.split(".")[0], "prompt")
            counts[part] += parameter.numel() * self.backbone.held(parameter)
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


def check_pair(
    method: type[Method], node: Mapping[str, Any], backbone: PretrainedBackbone, task: Task
) -> None:
    """Refuse a method on a backbone or task it cannot work with, before anything is loaded.

    Raises:
        UserError: names what does not fit, and what would.
    """
    if backbone.family not in method.families:
        raise UserError(
            f"{method.__name__} needs a backbone that is {' or '.join(method.families)}; "
            f"{backbone.name} is {backbone.family}."
        )
    reading = {key: node[key] for key in Reading.__annotations__ if key in node}
    chosen = reading.setdefault("readout", method.readouts[0])
    if chosen not in method.readouts:
        raise UserError(
            f"method.readout={chosen}: {method.__name__} reads through "
            f"{' or '.join(method.readouts)} alone; leave it out, or use another method, "
            "such as method=fine_tuning."
        )
    soft, offered = method.soft, method.readouts
    choose.check(backbone, task, reading, soft=soft, offered=offered)  # type: ignore[arg-type]
