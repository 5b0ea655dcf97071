"""Low resource: a share of each class of train (DPT: 10 %); dev and test stay whole.

DPT's rule: classes in the order in which they appear, one generator with a fixed seed, each class
shuffled, the first int(share x size) kept. So the subset is the same for every run; a task without
classes, such as QUOREF, is one class.
"""

import random
from dataclasses import replace

from ptrun.errors import UserError
from ptrun.setting.base import by_class, taken
from ptrun.types import Split


class LowResource:
    """A fixed share of each class.

    Args:
        share: of each class, more than 0 and at most 1.
        subset_seed: decides the subset, whatever the run's seeds are.
    """

    variant: str | None = None
    required = False

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
                f"setting.share is {self.share}: no class of {len(split.train)} training examples "
                "is large enough."
            )
        origin = {**split.origin, "train": f"{self.share:.0%} of each class"}
        return replace(split, train=taken(split.train, kept), origin=origin)
