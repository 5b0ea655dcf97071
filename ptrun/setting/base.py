"""A setting says which examples a run may use."""

from collections.abc import Hashable, Sequence
from typing import Protocol

from ptrun.types import Example, Split


class Setting(Protocol):
    """A data budget.

    `variant` names the folder of the setting's own files below `data_dir`; `required` says whether
    it samples where there are none.
    """

    variant: str | None
    required: bool

    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the examples a run may use; only `data_seed` decides a sample."""


def by_class(examples: Sequence[Example]) -> dict[Hashable, list[int]]:
    """Return the indices of each class, in the order in which classes first appear.

    Examples whose target is no plain label form one class.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, example in enumerate(examples):
        plain = isinstance(example.target, str)
        groups.setdefault(example.target if plain else None, []).append(index)
    return groups


def taken(examples: Sequence[Example], indices: Sequence[int]) -> list[Example]:
    """Return the examples of these indices, in file order."""
    return [examples[index] for index in sorted(indices)]
