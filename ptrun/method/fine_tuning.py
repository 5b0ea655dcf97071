"""Fine-tuning: the whole encoder and a linear head are learned, nothing is added to the input.

The baseline of all five papers (FT).
"""

from torch import nn

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.readout.head import Pooler
from ptrun.task.base import Task


class FineTuning(Method):
    """Learns encoder, pooler (where it is read) and head.

    Args:
        backbone: the encoder to tune.
        task: what is answered.
        pooler: as in `ptrun.readout.head.LinearHead`; a pooler that is read is tuned too.
    """

    tunes_backbone = True

    def __init__(self, backbone: PretrainedBackbone, task: Task, *, pooler: Pooler = "auto"):
        super().__init__(backbone, task, pooler)

    def learned(self) -> dict[str, nn.Parameter]:
        """Return the head's and the backbone's parameters."""
        read = self.backbone.body(decoder=self.readout.reads_decoder)
        body = {f"backbone.{name}": p for name, p in read.items()}
        return super().learned() | body
