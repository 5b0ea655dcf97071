"""Low resource: a share of each class of train (DPT: 10 %); dev and test do not change.

As in DPT, one generator with a fixed seed shuffles the classes in order of first appearance, and
the first int(share x size) examples of each are kept. So every run has the same subset. A task
without classes, such as QUOREF, is one class.
"""

import random

from ptrun.errors import UserError
from ptrun.setting.base import Setting, by_class, drawn
from ptrun.types import Split


class LowResource(Setting):
    """A fixed share of each class.

    Args:
        share: share of each class, more than 0 and at most 1.
        subset_seed: seed of the subset, independent of the run's seeds.
    """

    def __init__(self, *, share: float = 0.1, subset_seed: int = 0):
        if not 0 < share <= 1:
            raise UserError(f"setting.share is {share}; use more than 0 and at most 1.")
        self.share, self.subset_seed = share, subset_seed

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with a share of train."""
        rng = random.Random(self.subset_seed)
        kept: list[int] = []
        for indices in by_class(split.train).values():
            rng.shuffle(indices)
            kept += indices[: int(self.share * len(indices))]
        if not kept:
            raise UserError(
                f"setting.share is {self.share}, which leaves none of {len(split.train)} training "
                "examples; use a larger setting.share."
            )
        return drawn(split, {"train": f"{self.share:.0%} of each class"}, train=kept)
