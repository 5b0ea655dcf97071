"""No training: train and dev are empty."""

from dataclasses import replace

from ptrun.setting.base import Setting
from ptrun.types import Split


class ZeroShot(Setting):
    """No examples for training or selection."""

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with only its test examples."""
        origin = {"train": "none", "dev": "none", "test": split.origin.get("test", "")}
        return replace(split, train=[], dev=[], origin=origin)
