"""MLflow: a database beside the runs, or a server."""

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ptrun.config.identity import flat
from ptrun.tracking.trackers import final
from ptrun.types import RunResult

_ID = "ptrun.run_id"
_LONGEST = 500  # characters of a parameter


class _Mlflow:
    """The MLflow run with the id of the ptrun run; its group is the experiment."""

    def __init__(
        self, folder: Path, run_id: str, config: Mapping[str, Any], *, uri: str | None = None
    ):
        self.uri = uri or f"sqlite:///{folder.parent.absolute() / 'mlflow.db'}"
        self.group, self.run_id, self.config, self.last = folder.parent.name, run_id, config, 0

    def open(self) -> None:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        self.client = MlflowClient(self.uri)
        with suppress(MlflowException):  # runs that start together may all try to create it
            self.client.create_experiment(self.group)
        experiment = self.client.get_experiment_by_name(self.group).experiment_id
        tag = f"tags.`{_ID}` = '{self.run_id}'"
        if earlier := self.client.search_runs([experiment], tag, max_results=1):
            self.run = earlier[0].info.run_id
            self.client.update_run(self.run, status="RUNNING")
            return
        tags = {_ID: self.run_id}
        self.run = self.client.create_run(experiment, run_name=self.run_id, tags=tags).info.run_id
        for key, value in flat(self.config).items():
            self.client.log_param(self.run, key, str(value)[:_LONGEST])

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        from mlflow.entities import Metric

        self.last = self.last if step is None else step
        now = int(1000 * time.time())
        rows = [Metric(name, value, now, self.last) for name, value in numbers.items()]
        self.client.log_batch(self.run, metrics=rows)

    def finish(self, result: RunResult | None) -> None:
        self.log(final(result), None)
        status = "KILLED" if result is None else result.status.upper()
        self.client.set_terminated(self.run, status=status)


TRACKER = _Mlflow
