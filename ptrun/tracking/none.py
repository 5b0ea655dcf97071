"""No tracking: the run folder alone keeps the figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.types import RunResult


class NoTracker:
    """Takes everything, keeps nothing."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any]):
        pass

    def log(self, row: Mapping[str, Any]) -> None:
        """Ignore a row."""

    def finish(self, result: RunResult) -> None:
        """Ignore the result."""
