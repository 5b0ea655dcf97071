"""DPT: class words written after the text, scored by the head that pre-training trained.

Yao et al. 2022: ELECTRA as a whole is tuned, its replaced-token head included; nothing is added
(paper), or a bias a class (released code). The read-out, `ptrun.readout.class_words`, goes with any
method; `reserved` needs a tuned backbone and is this one's.
"""

from typing import Unpack

import torch
from torch import Tensor

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.fine_tuning import FineTuning
from ptrun.prompt.slots import Field
from ptrun.readout.base import Readout
from ptrun.readout.class_words import ClassWords
from ptrun.readout.reading import Reading
from ptrun.task.base import Task


class DPT(FineTuning):
    """Learns the backbone and its head, which tells the class words that belong there.

    Args:
        backbone: an ELECTRA discriminator.
        task: one of classes, or questions with several answers.
        reserved: write a reserved token of the vocabulary for each token of the class words, commas
            included, whose embedding begins as a copy of that token's: so the words have rows of
            their own to tune (code). Else the words themselves (paper).
        reading: as in `ptrun.readout.reading.Reading`; `readout` is always `class_words`.

    Raises:
        UserError: with `reserved`, the rows do not end in the words of all classes.
    """

    readouts = ("class_words",)

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        reserved: bool = False,
        **reading: Unpack[Reading],
    ):
        super().__init__(backbone, task, **reading)
        self._begun = not reserved
        if reserved:
            _check_reserved(self.readout)
            self.classes.reserved = True

    @property
    def classes(self) -> ClassWords:
        """The read-out, where one row has all classes."""
        assert isinstance(self.readout, ClassWords)
        return self.readout

    def placed(self) -> None:
        """Begin the reserved tokens as what they stand for, unless learned ones came first."""
        if not self._begun:
            table = self.backbone.model.get_input_embeddings().weight
            with torch.no_grad():
                table[self.classes.stand_ins] = table[self.classes.written]
            self._begun = True

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Take a tuned backbone back, its reserved tokens included."""
        super().load_exported(tensors)
        self._begun = True


def _check_reserved(readout: Readout) -> None:
    """Refuse rows that do not end in the words of all classes."""
    if not isinstance(readout, ClassWords):
        raise UserError(
            "method.reserved=true is for rows with all classes, not for a passage or a tree; "
            "leave it out, or method.class_tree and method.fan_out."
        )
    pvp = readout.pvp
    last = [part for part in pvp.pattern.parts if isinstance(part, Field)][-1]
    if last.name != "words":
        raise UserError(
            f"method.reserved=true: in pattern {pvp.name} {{{last.name}}} comes after the class "
            "words; name a method.pattern that ends in them."
        )
