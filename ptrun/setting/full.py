"""The full-data setting: every example of the protocol's split."""

from ptrun.setting.base import Setting
from ptrun.types import Split


class Full(Setting):
    """Keeps train, dev and test unchanged."""

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the split."""
        return split
