"""No training: train and dev are empty, test is scored as it is."""

from dataclasses import replace

from ptrun.types import Split


class ZeroShot:
    """Nothing to learn from and nothing to select on."""

    variant: str | None = None
    required = False

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split with its test alone."""
        origin = {"train": "none", "dev": "none", "test": split.origin.get("test", "")}
        return replace(split, train=[], dev=[], origin=origin)
