"""Manual prompt (MP): a written pattern, label words, and nothing learned.

The zero-shot rows of P-tuning's Tables 1-4, and LPAQA's and AutoPrompt's searched templates on
LAMA. Tuned on the same pattern it is `method=fine_tuning method.readout=verbalizer` (MP
fine-tuning; PET without ensembles and distillation).

Departs by default from P-tuning's code on LAMA with left-to-right backbones: where that cuts a
template before the object it leaves a space, which most such backbones tokenize as a word of its
own, and Megatron-11B answers there after an end mark, `</s>`. Here there is neither. The manual
figures in Table 2 (GPT-2 20.3, 22.8; Megatron-11B 23.1) are partly theirs:
`method.released_query=true` asks as that code does (`ptrun.readout.released_query`).
"""

from typing import Unpack

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.method.base import Method
from ptrun.readout.reading import Reading
from ptrun.task.base import Task


class ManualPrompt(Method):
    """Reads the backbone as it is; with `setting=zero_shot` nothing else is needed.

    Args:
        backbone: frozen.
        task: what is answered.
        reading: as in `ptrun.readout.reading.Reading`; `readout` is always `verbalizer`.
    """

    readouts = ("verbalizer",)

    def __init__(self, backbone: PretrainedBackbone, task: Task, **reading: Unpack[Reading]):
        super().__init__(backbone, task, **reading)
