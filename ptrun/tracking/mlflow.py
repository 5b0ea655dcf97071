"""MLflow: a database beside the runs, or a server."""

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ptrun.config.identity import flat
from ptrun.tracking.trackers import OneTracker, Tracked, final
from ptrun.types import RunResult

OPTIONS = ("uri",)
_ID = "ptrun.run_id"
_LONGEST = 500  # characters of a parameter


def opened(run: Tracked, uri: str | None) -> OneTracker:
    """Return the MLflow run with the id of the ptrun run; its group is the experiment."""
    from mlflow import MlflowClient

    client = MlflowClient(uri or f"sqlite:///{run.folder.parent.absolute() / 'mlflow.db'}")
    experiment = _experiment(client, run.group)
    earlier = client.search_runs([experiment], f"tags.`{_ID}` = '{run.run_id}'", max_results=1)
    if earlier:
        client.update_run(earlier[0].info.run_id, status="RUNNING")
        return _Mlflow(client, earlier[0].info.run_id)
    created = client.create_run(experiment, run_name=run.run_id, tags={_ID: run.run_id})
    for key, value in flat(run.config).items():
        client.log_param(created.info.run_id, key, str(value)[:_LONGEST])
    return _Mlflow(client, created.info.run_id)


def _experiment(client: Any, name: str) -> str:
    """Return the id of an experiment; runs that start together may all try to create it."""
    from mlflow.exceptions import MlflowException

    with suppress(MlflowException):
        client.create_experiment(name)
    return str(client.get_experiment_by_name(name).experiment_id)


class _Mlflow:
    def __init__(self, client: Any, run: str):
        self.client, self.run, self.last = client, run, 0

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        from mlflow.entities import Metric

        self.last = self.last if step is None else step
        now = int(1000 * time.time())
        rows = [Metric(name, value, now, self.last) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=rows)

    def finish(self, result: RunResult | None) -> None:
        self.log(final(result) if result else {}, None)
        status = "KILLED" if result is None else result.status.upper()
        self.client.set_terminated(self.run, status=status)
