"""DPT: class words written after the text, scored by ELECTRA's replaced-token head.

Yao et al. 2022: ELECTRA and its replaced-token head are tuned. The paper adds no parameters; the
released code adds a bias per class. Every method can use the read-out,
`ptrun.readout.class_words`. `reserved` needs a tuned backbone and belongs to this method.
"""

from typing import Any

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.method.fine_tuning import FineTuning
from ptrun.readout.class_words import ClassWords


class DPT(FineTuning):
    """Learns the backbone and its head, which detects the class words that fit the text.

    Args:
        reserved: write a reserved token of the vocabulary for each token of the class words, commas
            included. Its embedding starts as a copy of that token's, so the words have rows of
            their own to tune (code). False writes the words themselves (paper).

    Raises:
        UserError: with `reserved`, the rows do not end in the words of all classes.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=dpt", "backbone=pocket_electra")
    >>> method.classes.odds(output, batch).shape  # [B, classes]
    torch.Size([2, 2])
    """

    readouts = ("class_words",)

    def __init__(self, *run: Any, reserved: bool = False):
        super().__init__(*run)
        self._copied = not reserved
        if reserved:
            if not isinstance(self.readout, ClassWords):
                raise UserError("method.reserved=true needs rows with all classes, not a passage.")
            pvp = self.readout.pvp
            last = pvp.pattern.slots[-1]
            if last.name != "words":
                raise UserError(
                    f"method.reserved=true: in pattern {pvp.name} {{{last.name}}} comes after the "
                    "class words; name a readout.pattern that ends in them."
                )
            self.readout.reserved = True

    @property
    def classes(self) -> ClassWords:
        """The read-out."""
        assert isinstance(self.readout, ClassWords)
        return self.readout

    def placed(self) -> None:
        """Copy the class words' embeddings to the reserved tokens, unless learned ones exist."""
        if not self._copied:
            table = self.backbone.model.get_input_embeddings().weight
            with torch.no_grad():
                table[self.classes.stand_ins] = table[self.classes.written]
            self._copied = True

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load a tuned backbone, its reserved tokens included."""
        super().load_exported(tensors)
        self._copied = True
