"""Fine-tuning: the whole backbone is learned, nothing is added to the input.

With a linear head the baseline FT of all five papers; with `readout: verbalizer` it tunes on a
pattern: MP fine-tuning of P-tuning, PET without ensembles, FT of PPT.
"""

from typing import Unpack

from torch import nn

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

_OWN_HEAD = ("verbalizer", "class_words")
"""Read-outs through the head that pre-training trained, which is tuned too."""


class FineTuning(Method):
    """Learns the backbone and the head that reads it.

    Args:
        backbone: what is tuned; a pooler that is read is tuned too, and with a verbalizer or class
            words the head that pre-training trained.
        task: what is answered.
        reading: as in `ptrun.readout.reading.Reading`.
    """

    tunes_backbone = True

    def __init__(self, backbone: PretrainedBackbone, task: Task, **reading: Unpack[Reading]):
        super().__init__(backbone, task, **reading)
        self._own_head = reading.get("readout", self.readouts[0]) in _OWN_HEAD

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the head's and the backbone's parameters."""
        read = self.backbone.body(decoder=self.readout.reads_decoder, head=self._own_head)
        return super().learned() | {f"backbone.{name}": p for name, p in read.items()}
