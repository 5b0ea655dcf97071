"""The processes of a run, as training sees them."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class World(Protocol):
    """The ranks that train one run together. `ptrun.hardware.ranks.Ranks` implements it."""

    @property
    def size(self) -> int:
        """Number of ranks."""

    @property
    def data_parallel(self) -> int:
        """Number of ranks, or groups of ranks, that divide the rows of a batch."""

    @property
    def share(self) -> int:
        """Index of this rank's share of the rows."""

    @property
    def model_parallel(self) -> int:
        """Number of ranks that hold one model together."""

    @property
    def main(self) -> bool:
        """Whether this is the first rank."""

    def broadcast(self, value: T) -> T:
        """Return the first rank's value."""

    def check_same(self, number: int, step: int) -> None:
        """Check that ranks which hold one model together have the same number."""

    def total(self, values: list[float]) -> list[float]:
        """Return sums over the shares."""

    def merged(self, own: Mapping[Any, T]) -> dict[Any, T]:
        """Return the predictions of all shares."""
