"""Few shots: k training and k dev examples from train, balanced over labels (PPT, FewGLUE-like).

Gao et al.'s and PPT's protocol: dev is as large as train and disjoint from it. Test stays whole.
"""

import random
from collections.abc import Hashable
from dataclasses import replace

from ptrun.errors import UserError
from ptrun.setting.base import by_class, taken
from ptrun.types import Split


class FewShot:
    """k examples to learn from and k to select on.

    Args:
        k: examples in all, or of each class with `per_class`. What does not divide evenly goes to
            the classes that appear first.
        per_class: PPT does so for tasks of more than five classes (k=8).
    """

    variant: str | None = None
    required = False

    def __init__(self, *, k: int, per_class: bool = False):
        if k < 1:
            raise UserError(f"setting.k is {k}; use 1 or more.")
        self.k, self.per_class = k, per_class

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return k examples for train and k others for dev.

        Raises:
            UserError: a class has too few examples.
        """
        rng = random.Random(f"few shot:{data_seed}")
        classes = by_class(split.train)
        train: list[int] = []
        dev: list[int] = []
        for (label, indices), size in zip(classes.items(), self._sizes(len(classes)), strict=True):
            self._check(label, len(indices), size)
            drawn = rng.sample(indices, 2 * size)
            train, dev = train + drawn[:size], dev + drawn[size:]
        kind = "of each class" if self.per_class else "balanced"
        origin = {"train": f"{self.k} {kind}", "dev": f"{self.k} others of train, {kind}"}
        return replace(
            split,
            train=taken(split.train, train),
            dev=taken(split.train, dev),
            origin={**split.origin, **origin},
        )

    def _sizes(self, classes: int) -> list[int]:
        """Return how many examples of each class train gets; dev gets as many."""
        if self.per_class:
            return [self.k] * classes
        return [self.k // classes + (i < self.k % classes) for i in range(classes)]

    def _check(self, label: Hashable, found: int, size: int) -> None:
        if found < 2 * size:
            whose = f" of {label!r}" if label is not None else ""
            raise UserError(
                f"setting.k is {self.k}: train and dev need {2 * size} examples{whose}, but there "
                f"are {found}.\nUse a smaller setting.k, or setting=full."
            )
