"""Fine-tuning: the whole backbone is learned, nothing is added to the input.

With a linear head it is the baseline FT of all five papers. With `readout: verbalizer` it tunes on
a pattern: MP fine-tuning of P-tuning, PET without ensembles, FT of PPT.
"""

from typing import Unpack

from torch import nn

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_PRETRAINED_HEAD = ("verbalizer", "class_words")
"""Read-outs that use, and therefore tune, the pre-trained head."""


class FineTuning(Method):
    """Learns the backbone and the head that reads it, with a pooler if the read-out has one."""

    tunes_backbone = True

    def __init__(self, backbone: PretrainedBackbone, task: Task, **reading: Unpack[Reading]):
        super().__init__(backbone, task, **reading)
        self._tunes_head = reading.get("readout", self.readouts[0]) in _PRETRAINED_HEAD

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the head's and the backbone's parameters; a pooler only if it is read."""
        body = self.backbone.body(decoder=self.readout.reads_decoder, head=self._tunes_head)
        unread = () if getattr(self.readout, "reads_pooler", False) else ("pooler.",)
        own = {name: p for name, p in body.items() if not name.startswith(unread)}
        return super().learned() | {f"backbone.{name}": p for name, p in own.items()}
