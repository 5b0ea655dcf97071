"""A setting decides which examples a run may use."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from ptrun.types import Example, Split


class Setting(ABC):
    """A data budget.

    `variant` names the subfolder of `data_dir` with the setting's own files. `required` is False if
    the setting draws a sample when these files are missing.
    """

    variant: str | None = None
    required: bool = False

    @abstractmethod
    def choose(self, split: Split, data_seed: int) -> Split:
        """Return the examples a run may use; only `data_seed` decides a sample."""


def by_class(examples: Sequence[Example]) -> dict[Hashable, list[int]]:
    """Return the indices of each class, in order of first appearance.

    Examples without a plain label as target form one class.
    """
    groups: dict[Hashable, list[int]] = {}
    for index, example in enumerate(examples):
        plain = isinstance(example.target, str)
        groups.setdefault(example.target if plain else None, []).append(index)
    return groups


def drawn(split: Split, origin: Mapping[str, str], **parts: Sequence[int]) -> Split:
    """Return the split with parts that are drawn from train by index, in file order."""
    examples = {part: [split.train[i] for i in sorted(at)] for part, at in parts.items()}
    return replace(split, origin={**split.origin, **origin}, **examples)
