"""Few shots: k training and k dev examples from train, balanced over labels.

As in Gao et al. and PPT, dev is as large as train and disjoint from it. Test does not change.
"""

import random
from collections.abc import Hashable

from ptrun.errors import UserError
from ptrun.setting.base import Setting, by_class, drawn
from ptrun.types import Split


class FewShot(Setting):
    """k examples for training and k for selection.

    Args:
        k: examples in total, or per class with `per_class`. A remainder goes to the classes that
            appear first.
        per_class: whether k counts per class, as in PPT for more than five classes (k=8).
    """

    def __init__(self, *, k: int, per_class: bool = False):
        if k < 1:
            raise UserError(f"setting.k is {k}; use 1 or more.")
        self.k, self.per_class = k, per_class

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return k examples for train and k different ones for dev.

        Raises:
            UserError: a class has too few examples.
        """
        rng = random.Random(f"few shot:{data_seed}")
        classes = by_class(split.train)
        train: list[int] = []
        dev: list[int] = []
        for (label, indices), size in zip(classes.items(), self._sizes(len(classes)), strict=True):
            self._check(label, len(indices), size)
            sample = rng.sample(indices, 2 * size)
            train, dev = train + sample[:size], dev + sample[size:]
        kind = "of each class" if self.per_class else "balanced"
        origin = {"train": f"{self.k} {kind}", "dev": f"{self.k} others of train, {kind}"}
        return drawn(split, origin, train=train, dev=dev)

    def _sizes(self, classes: int) -> list[int]:
        """Return the number of train examples per class; dev gets as many."""
        if self.per_class:
            return [self.k] * classes
        return [self.k // classes + (i < self.k % classes) for i in range(classes)]

    def _check(self, label: Hashable, count: int, size: int) -> None:
        if count < 2 * size:
            whose = f" of {label!r}" if label is not None else ""
            raise UserError(
                f"setting.k is {self.k}: train and dev need {2 * size} examples{whose}, but there "
                f"are {count}.\nUse a smaller setting.k, or setting=full."
            )
