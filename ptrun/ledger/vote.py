"""The score of one answer an example that the seeds of a cell give together.

Labels by the majority, IDPG's bagging; numbers (STS-B) by their mean, as its released code does.
Read from `predictions.jsonl`, so only where every seed answered the same test set.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ptrun.ledger.aggregate import majority_vote, mean_vote
from ptrun.metrics.correlation import pearson_and_spearman
from ptrun.metrics.labels import Metric, score
from ptrun.types import RunResult

FILE = "predictions.jsonl"
_NUMBERS = "pearson_spearman"


@dataclass(frozen=True)
class Vote:
    """The score of what seeds answer together; without one, `reason` says why."""

    score: float | None = None
    reason: str = ""


class _NoneError(Exception):
    """There can be no vote, for this reason."""


def vote(runs: Sequence[RunResult], folders: Mapping[str, Path]) -> Vote:
    """Return the score of the vote of finished runs, in the metric that selected; test alone.

    A tie goes to the tied label that the earliest seed answered.

    Args:
        runs: the seeds of one cell, in any order.
        folders: run folders by run id.
    """
    done = {run.run_id: run for run in runs if run.status == "finished"}
    seeds = sorted(done.values(), key=lambda run: run.seed)
    if len(seeds) < 2:
        return Vote(reason="fewer than two seeds finished")
    try:
        rows = [_rows(folders[run.run_id]) for run in seeds]
        _check_same(rows, seeds)
        return Vote(_score(seeds[0], rows))
    except _NoneError as error:
        return Vote(reason=str(error))


def _rows(folder: Path) -> list[dict[str, Any]]:
    file = folder / FILE
    if not file.is_file():
        raise _NoneError(f"{folder.name} has no {FILE}")
    try:
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except json.JSONDecodeError as error:
        raise _NoneError(f"{file} is damaged") from error


def _check_same(rows: Sequence[Sequence[Mapping[str, Any]]], seeds: Sequence[RunResult]) -> None:
    """Refuse seeds that answered other examples, or had other answers called right."""
    asked = [[(row["id"], row["target"]) for row in own] for own in rows]
    for own, run in zip(asked, seeds, strict=True):
        if own != asked[0]:
            raise _NoneError(f"seed {run.seed} answered another test set than seed {seeds[0].seed}")


def _score(run: RunResult, rows: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    golds = [row["target"] for row in rows[0]]
    answers = [[row["prediction"] for row in own] for own in rows]
    if run.metric == _NUMBERS:
        return pearson_and_spearman(mean_vote(answers), golds)
    positive = run.config.get("task", {}).get("positive")
    values = [*golds, *(answer for own in answers for answer in own)]
    one_each = all(isinstance(value, str | int) for value in values)
    if not one_each or not _of_labels(run.metric, positive):
        raise _NoneError(f"{run.metric} of {run.names['task']} is not a score of one label each")
    return score(run.metric, majority_vote(answers), golds, positive=positive)  # type: ignore[arg-type]


def _of_labels(metric: str, positive: str | None) -> bool:
    """Return whether labels alone decide a metric; MultiRC's are of questions."""
    known = get_args(Metric) if positive is not None else ("accuracy", "macro_f1")
    return metric in known
