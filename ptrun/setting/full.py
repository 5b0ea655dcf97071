"""The full-data setting: every example the protocol hands out."""

from ptrun.types import Split


class Full:
    """Keeps train, dev and test as they are."""

    variant: str | None = None
    required = False

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the examples a run may use; `data_seed` would decide a sample."""
        return split
