"""In-context learning: examples of train before each row, and nothing learned.

Brown et al. 2020 §2: k demonstrations in the form of the row, each with its answer. They draw
others for each row; here they are drawn once a run, by its seed, since choice and order move scores
(Zhao et al. 2021 §3). Each label has as many, as in LM-BFF (Gao et al. 2021 §6.1). Those that do
not fit the backbone's positions are left out whole, and counted; the row is cut as without them.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.task.dataset import MESSAGES
from ptrun.task.setting import shots
from ptrun.types import Example


class InContext(Method):
    """Reads the backbone as it is, with demonstrations before each row.

    Args:
        examples: the number of demonstrations; 0 is `method=manual_prompt`.
        balanced: of a task with labels: draw as many of each label as possible.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=in_context", "method.examples=2")
    >>> method.prime(method.task.load("train"))
    >>> len(method.record["demonstrations"]), method.learned()
    (2, {})
    """

    readouts = ("verbalizer", "writing")
    learns = False
    may_differ = ("examples", "balanced")

    def __init__(self, *run: Any, examples: int, balanced: bool = True):
        super().__init__(*run)
        if MESSAGES in self.task.fields:
            raise UserError(f"{type(self).__name__}: task={self.task.name} holds conversations.")
        if examples < 0:
            raise UserError(f"method.examples is {examples}; use 0 or more.")
        self.examples, self.balanced = examples, balanced
        self._seed = int(torch.randint(2**62, (), device="cpu"))  # from the run's

    def prime(self, train: Sequence[Example]) -> None:
        """Draw the demonstrations from train."""
        readout: Any = self.readout
        key = f"method.examples={self.examples}"
        chosen = shots(train, self.examples, self._seed, key, balanced=self.balanced)
        readout.texts_before = [readout.demonstration(example) for example in chosen]
        ids = [example.id for example in chosen]
        self.record = {"demonstrations": ids, "texts_before": readout.texts_before}
