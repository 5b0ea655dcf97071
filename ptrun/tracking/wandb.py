"""Weights & Biases: logs the rows of `metrics.jsonl` live, or offline without an API key."""

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.types import RunResult


class WandbTracker:
    """One wandb run per ptrun run; both have the same id, so a resumed run continues its wandb run.

    Args:
        folder: run folder, also for offline files.
        run_id: ptrun's run id.
        config: the resolved configuration.
        project: wandb project.

    Raises:
        UserError: wandb is not installed.
    """

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any], *, project: str):
        try:
            import wandb
        except ImportError as error:
            raise UserError(
                "tracking=wandb needs wandb; run pip install 'ptrun[wandb]'."
            ) from error
        folder.mkdir(parents=True, exist_ok=True)
        self.run = wandb.init(
            project=project,
            id=run_id,
            name=run_id,
            dir=folder,
            config=dict(config),
            resume="allow",
            mode="online" if _has_key() else "offline",
            reinit="create_new",  # runs that share passes are in one process
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, row: Mapping[str, Any]) -> None:
        """Log the numbers of a row, prefixed with its event."""
        event = row["event"]
        numbers = {f"{event}/{key}": v for key, v in row.items() if isinstance(v, int | float)}
        self.run.log(numbers)

    def finish(self, result: RunResult) -> None:
        """Log the final metrics and close the run."""
        for part, metrics in result.metrics.items():
            for name, value in metrics.items():
                self.run.summary[f"final/{part}/{name}"] = value
        self.run.finish(exit_code=0 if result.status == "finished" else 1)


def _has_key() -> bool:
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"] == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
