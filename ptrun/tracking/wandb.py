"""Weights & Biases: live with an API key, else in files below the run folder."""

import netrc
import os
from collections.abc import Mapping
from typing import Any

from ptrun.tracking.base import OneTracker, Tracked, final
from ptrun.types import RunResult

OPTIONS = ("project",)


def opened(run: Tracked, project: str) -> OneTracker:
    """Return a wandb run with the id of the ptrun run."""
    import wandb

    return _Wandb(
        wandb.init(
            project=project,
            id=run.run_id,
            name=run.run_id,
            group=run.group,
            dir=run.folder,
            config=dict(run.config),
            resume="allow",
            mode="online" if _has_key() else "offline",
            reinit="create_new",  # runs that share passes are in one process
            settings=wandb.Settings(silent=True, console="off"),
        )
    )


class _Wandb:
    def __init__(self, run: Any):
        self.run = run

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.run.log({**numbers, **({} if step is None else {"step": step})})

    def finish(self, result: RunResult | None) -> None:
        for name, value in final(result).items() if result else ():
            self.run.summary[name] = value
        done = result is not None and result.status == "finished"
        self.run.finish(exit_code=0 if done else 1)


def _has_key() -> bool:
    if os.environ.get("WANDB_MODE"):
        return os.environ["WANDB_MODE"] == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return False
