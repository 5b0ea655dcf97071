"""ptrun: config-driven experiments in prompt tuning of pretrained language models.

    import ptrun

    run = ptrun.run(method="ptuning_v2", task="pocket_sentiment", seed=1, train={"lr": 1e-2})
    run.metrics["test"]
    run.predict([{"sentence": "a bright film"}])

Nothing is imported before it is used: `import ptrun` loads neither torch nor Hydra.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ptrun.types import __version__

if TYPE_CHECKING:
    from ptrun.api import Run, load, predict, report, run, sweep
    from ptrun.errors import RunFailed, UserError
    from ptrun.reporting.table import Results

__all__ = [
    "Results",
    "Run",
    "RunFailed",
    "UserError",
    "__version__",
    "load",
    "predict",
    "report",
    "run",
    "sweep",
]

_ELSEWHERE = {"Results": "reporting.table", "RunFailed": "errors", "UserError": "errors"}


def __getattr__(name: str) -> Any:
    """Import a name of the API at its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'ptrun' has no attribute {name!r}")
    value = getattr(import_module(f"ptrun.{_ELSEWHERE.get(name, 'api')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the names of the API."""
    return sorted(__all__)
