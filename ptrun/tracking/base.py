"""What a tracker is: an outside place that shows the rows of `metrics.jsonl`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ptrun.types import RunResult


@dataclass(frozen=True)
class Tracked:
    """The run that a tracker shows.

    Args:
        folder: the run folder.
        run_id: its id; a run that is resumed goes on under the same id.
        config: the configuration that can change a number.
    """

    folder: Path
    run_id: str
    config: Mapping[str, Any]

    @property
    def group(self) -> str:
        """The name of the runs that belong together: their folder."""
        return self.folder.parent.name


class OneTracker(Protocol):
    """A connection to one tracker; only the thread that opened it uses it."""

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        """Show numbers at a step."""

    def finish(self, result: RunResult | None) -> None:
        """Show the final metrics and close; None is a run that was interrupted."""


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a row, prefixed with its event and part."""
    prefix = "/".join(str(row[key]) for key in ("part", "event") if row.get(key))
    kept = {key: value for key, value in row.items() if key != "step"}
    return {
        f"{prefix}/{key}": float(value)
        for key, value in kept.items()
        if isinstance(value, int | float)
    }


def final(result: RunResult) -> dict[str, float]:
    """Return the final metrics by name."""
    return {
        f"final/{part}/{name}": float(value)
        for part, metrics in result.metrics.items()
        for name, value in metrics.items()
    }
