"""No tracking: only the run folder stores the metrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.types import RunResult


class NoTracker:
    """A tracker that stores nothing."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any]):
        pass

    def log(self, row: Mapping[str, Any]) -> None:
        """Ignore a row."""

    def finish(self, result: RunResult) -> None:
        """Ignore the result."""
