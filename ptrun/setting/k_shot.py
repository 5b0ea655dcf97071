"""K examples in all and 1,000 others for dev, fixed for all seeds (IDPG's low-resource setting).

The paper's own files are used where they are, `<data_dir>/idpg_lowres_<k>/<task>/`; else the same
numbers are drawn with a fixed seed, and the result says which.
"""

import random
from dataclasses import replace

from ptrun.errors import UserError
from ptrun.setting.base import taken
from ptrun.types import Split


class KShot:
    """A fixed sample of train, not balanced.

    Args:
        k: training examples.
        dev: examples of train that select; fewer where train has no more.
        subset_seed: decides the sample, whatever the run's seeds are.
    """

    required = False

    def __init__(self, *, k: int, dev: int = 1000, subset_seed: int = 0):
        if k < 1 or dev < 1:
            raise UserError(f"setting.k is {k} and setting.dev {dev}; use 1 or more.")
        self.k, self.dev, self.subset_seed = k, dev, subset_seed
        self.variant: str | None = f"idpg_lowres_{k}"

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return k training examples, and others for dev.

        Raises:
            UserError: train has too few examples.
        """
        if split.origin.get("train") == f"files of {self.variant}":
            return split
        if len(split.train) <= self.k:
            raise UserError(
                f"setting.k is {self.k}, but train has {len(split.train)} examples; use less."
            )
        count = min(self.dev, len(split.train) - self.k)
        rng = random.Random(f"k shot:{self.subset_seed}")
        drawn = rng.sample(range(len(split.train)), self.k + count)
        origin = {"train": f"{self.k} of train", "dev": f"{count} others of train"}
        return replace(
            split,
            train=taken(split.train, drawn[: self.k]),
            dev=taken(split.train, drawn[self.k :]),
            origin={**split.origin, **origin},
        )
