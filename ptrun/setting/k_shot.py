"""K training and 1,000 dev examples in total, equal for all seeds (IDPG's low-resource setting).

They come from the paper's files in `<data_dir>/idpg_lowres_<k>/<task>/` if these exist. Otherwise
as many are drawn with a fixed seed. The result records which.
"""

import random

from ptrun.errors import UserError
from ptrun.setting.base import Setting, drawn
from ptrun.types import Split


class KShot(Setting):
    """A fixed sample of train, not balanced.

    Args:
        k: training examples.
        dev: examples of train for selection; fewer if train is too small.
        subset_seed: seed of the sample, independent of the run's seeds.
    """

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
                f"setting.k is {self.k}, but train has {len(split.train)} examples; use fewer."
            )
        count = min(self.dev, len(split.train) - self.k)
        rng = random.Random(f"k shot:{self.subset_seed}")
        sample = rng.sample(range(len(split.train)), self.k + count)
        origin = {"train": f"{self.k} of train", "dev": f"{count} others of train"}
        return drawn(split, origin, train=sample[: self.k], dev=sample[self.k :])
