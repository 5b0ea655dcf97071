"""The test score of a vote of the seeds of a cell.

Labels are combined by majority as in IDPG's bagging, numbers (STS-B) by their mean as in its
released code. A vote needs `predictions.jsonl` of the same test set from every seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ptrun.errors import UserError
from ptrun.folder.digest import is_number
from ptrun.folder.find import Run
from ptrun.ledger.aggregate import majority_vote, mean_vote
from ptrun.metrics.correlation import pearson_and_spearman
from ptrun.metrics.labels import Metric, score
from ptrun.types import RunResult

FILE = "predictions.jsonl"
_NUMBERS = "pearson_spearman"


@dataclass(frozen=True)
class Vote:
    """The score of a vote; without a score, `reason` says why."""

    score: float | None = None
    reason: str = ""


class _NoVoteError(Exception):
    """A vote is not possible, for this reason."""


def vote(runs: Sequence[RunResult], folders: Mapping[str, Path]) -> Vote:
    """Return the vote's test score of finished runs, in the metric that selected them.

    Args:
        runs: the seeds of one cell, in any order; the lowest seed breaks a tie.
        folders: run folders by run id.
    """
    done = {run.run_id: run for run in runs if run.status == "finished"}
    seeds = sorted(done.values(), key=lambda run: run.seed)
    if len(seeds) < 2:
        return Vote(reason="fewer than two seeds finished")
    try:
        rows = [_rows(Run(folders[run.run_id], run)) for run in seeds]
        _check_same(rows, seeds)
        return Vote(_score(seeds[0], rows))
    except _NoVoteError as error:
        return Vote(reason=str(error))


def _rows(run: Run) -> list[dict[str, Any]]:
    try:
        rows = run.rows(FILE)
    except UserError as error:
        raise _NoVoteError(str(error)) from error
    if rows is None:
        raise _NoVoteError(f"{run.folder.name} has no {FILE}")
    if not all({"id", "target", "prediction"} <= row.keys() for row in rows):
        raise _NoVoteError(f"{run.folder.name}: {FILE} is damaged")
    return rows


def _check_same(rows: Sequence[Sequence[Mapping[str, Any]]], seeds: Sequence[RunResult]) -> None:
    """Refuse seeds whose test sets differ in an example or a target."""
    targets = [[(row["id"], row["target"]) for row in own] for own in rows]
    for own, run in zip(targets, seeds, strict=True):
        if own != targets[0]:
            raise _NoVoteError(f"seeds {seeds[0].seed} and {run.seed} have different test sets")


def _score(run: RunResult, rows: Sequence[Sequence[Mapping[str, Any]]]) -> float:
    golds = [row["target"] for row in rows[0]]
    predictions = [[row["prediction"] for row in own] for own in rows]
    numbers = all(is_number(value) for values in (golds, *predictions) for value in values)
    if run.metric == _NUMBERS and numbers:
        return pearson_and_spearman(mean_vote(predictions), golds)
    positive = run.config.get("task", {}).get("positive")
    labels = all(isinstance(v, str | int) for values in (golds, *predictions) for v in values)
    # Labels alone decide these metrics; MultiRC's metrics group labels by question.
    known = get_args(Metric) if positive is not None else ("accuracy", "macro_f1")
    if not labels or run.metric not in known:
        name = f"{run.metric} of {run.names['task']}"
        raise _NoVoteError(f"{name} is not computed from one label per example")
    return score(run.metric, majority_vote(predictions), golds, positive=positive)  # type: ignore[arg-type]
