"""A sample of train of a given size: `setting=sample_size setting.n=100,1000` for a curve."""

import random

from ptrun.errors import UserError
from ptrun.setting.base import Setting, drawn
from ptrun.types import Split


class SampleSize(Setting):
    """n examples of train, drawn with the data seed; larger samples contain smaller ones.

    Args:
        n: training examples.
    """

    def __init__(self, *, n: int):
        if n < 1:
            raise UserError(f"setting.n is {n}; use 1 or more.")
        self.n = n

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with n training examples.

        Raises:
            UserError: train has fewer.
        """
        if len(split.train) < self.n:
            raise UserError(
                f"setting.n is {self.n}, but train has {len(split.train)} examples; "
                f"use setting.n={len(split.train)} or less."
            )
        order = list(range(len(split.train)))
        random.Random(f"sample size:{data_seed}").shuffle(order)
        return drawn(split, {"train": f"{self.n} of train"}, train=order[: self.n])
