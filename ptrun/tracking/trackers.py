"""`tracking=wandb`, `tracking=[wandb,mlflow]`: the trackers of a run."""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.tracking.base import Tracked
from ptrun.tracking.guard import Guard
from ptrun.types import RunResult

_PACKAGES = {
    "wandb": "wandb",
    "tensorboard": "torch.utils.tensorboard",
    "mlflow": "mlflow",
    "trackio": "trackio",
}


class Trackers:
    """Sends the rows of a run to any number of trackers; none of them can fail or delay the run.

    Args:
        folder: the run folder.
        run_id: the id of the run.
        config: the configuration that can change a number.
        wandb, tensorboard, mlflow, trackio: the options of each tracker; None leaves it out.

    Raises:
        UserError: a tracker is not installed, or has no such option.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        config: Mapping[str, Any],
        *,
        wandb: Mapping[str, Any] | None = None,
        tensorboard: Mapping[str, Any] | None = None,
        mlflow: Mapping[str, Any] | None = None,
        trackio: Mapping[str, Any] | None = None,
    ):
        given = {"wandb": wandb, "tensorboard": tensorboard, "mlflow": mlflow, "trackio": trackio}
        run = Tracked(folder, run_id, config)
        self.guards = [
            _guard(name, run, options) for name, options in given.items() if options is not None
        ]

    def log(self, row: Mapping[str, Any]) -> None:
        """Pass a row on."""
        for guard in self.guards:
            guard.log(row)

    def finish(self, result: RunResult | None) -> None:
        """Close all trackers; None is a run that was interrupted."""
        for guard in self.guards:
            guard.finish(result)


def _guard(name: str, run: Tracked, options: Mapping[str, Any]) -> Guard:
    """Return a tracker that opens in a thread of its own.

    Raises:
        UserError: it is not installed, or has no such option.
    """
    if find_spec(name) is None:
        raise UserError(f"tracking={name} needs {name}. Type: pip install 'ptrun[{name}]'")
    module: Any = import_module(f"ptrun.tracking.{name}")
    if unknown := set(options) - set(module.OPTIONS):
        known = ", ".join(module.OPTIONS) or "none"
        raise UserError(f"tracking.{name}.{min(unknown)}: unknown. Options of {name}: {known}.")
    return Guard(name, _PACKAGES[name], lambda: module.opened(run, **options))
