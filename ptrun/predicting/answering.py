"""Predictions of a finished run for the user's rows, about a thousand rows at a time."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.predicting.loading import ready
from ptrun.predicting.questions import Question, questions, readable
from ptrun.predicting.submission import Submission
from ptrun.predicting.writing import Form, form_of, lines_to, make
from ptrun.runs.finished import Finished
from ptrun.task.own import Own
from ptrun.task.table import FOUND, Given
from ptrun.types import Example, Prediction

_CHUNK = 1024  # rows that are sorted by length and predicted together


@dataclass(frozen=True)
class Detail:
    """What an answer holds beside the prediction.

    Args:
        probabilities: those of all labels.
        top: the number of likeliest labels, with their probabilities.
        raw: whether a table has texts as they are that a spreadsheet would run as formulas.
    """

    probabilities: bool = False
    top: int | None = None
    raw: bool = False

    def __post_init__(self) -> None:
        """Refuse a number of labels that is not 1 or more."""
        if self.top is not None and (isinstance(self.top, bool) or self.top < 1):
            raise UserError(f"predict: top is {self.top}; use 1 or more.")


def predict(
    given: str,
    typed: Sequence[str],
    file: Path,
    output: Path | None,
    *,
    detail: Detail,
    table: Given = FOUND,
    submission: Path | None = None,
) -> None:
    """Write an answer for each row of a file, in order.

    Args:
        given: the run's folder or id.
        typed: `KEY=VALUE` arguments.
        file: the rows; `-` is standard input.
        output: a new file, whose suffix selects the form; None writes to standard output.
        detail: what an answer holds.
        table: what is known of a CSV; its quoting is that of the run's task if it is None.
        submission: a folder; the file of a leaderboard is written there instead of `output`.

    Raises:
        UserError: the run cannot predict, a row does not suit its task, or `output` exists.
    """
    run = ready(given, typed)
    parts = frozenset(run.parts)
    if isinstance(run.task, Own) and table.quoting is None:
        table = replace(table, quoting=run.task.given.quoting)
    form: Form = form_of(output, detail.top, raw=detail.raw)
    if submission is not None:
        form = Submission(run.task.name, run.task.labels, file)
        output = submission / form.name
    with readable(file) as own:
        total = sum(1 for _ in questions(own, run.task, parts, table))  # checks every row first
        if submission is not None:
            make(submission)
        quiet = not sys.stderr.isatty() or (output is None and sys.stdout.isatty())
        with lines_to(output) as lines, _bar(total, quiet=quiet) as bar:
            rows = questions(own, run.task, parts, table)
            for answered in _chunks(run, run.load(), rows, detail):
                lines.write(form.lines(answered))
                bar.advance(bar.task_ids[0], len(answered))
            lines.write(form.end())


def answers(
    run: Finished, methods: Mapping[str, Method], asked: Iterable[Question], detail: Detail
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each row, in order: what a line of `ptrun predict` holds.

    Raises:
        UserError: `detail` asks for probabilities, and the read-out has none.
    """
    for answered in _chunks(run, methods, asked, detail):
        yield from (answer for _, answer in answered)


def _chunks(
    run: Finished, methods: Mapping[str, Method], asked: Iterable[Question], detail: Detail
) -> Iterator[list[tuple[Question, dict[str, Any]]]]:
    rows = iter(asked)
    while chunk := list(islice(rows, _CHUNK)):
        found = predictions(run, methods, [row.example for row in chunk])
        yield [(own, _answer(run, own, one, detail)) for own, one in zip(chunk, found, strict=True)]


def predictions(
    run: Finished, methods: Mapping[str, Method], examples: Sequence[Example]
) -> list[Prediction]:
    """Return the prediction for each example, by the method of its part."""
    places: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        places.setdefault("" if "" in methods else str(example.group), []).append(place)
    chosen = [methods[part] for part in places]
    features = [methods[p].encode([examples[i] for i in rows]) for p, rows in places.items()]
    found: dict[int, Prediction] = {}
    for rows, values in zip(places.values(), run.engine.predict(chosen, features), strict=True):
        found.update(zip(rows, values, strict=True))
    run.backbone.kept.clear()  # cached features of these rows; the next rows differ
    return [found[place] for place in range(len(examples))]


def _answer(
    run: Finished, question: Question, prediction: Prediction, detail: Detail
) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": question.id, "prediction": prediction.value}
    if run.task.answer == "option":
        options = dict(enumerate(question.example.fields["options"]))
        answer["option"] = options.get(prediction.value)  # a T5 may write no option
    if prediction.probability is not None:
        answer["probability"] = round(prediction.probability, 4)
    if not (detail.probabilities or detail.top):
        return answer
    if prediction.probabilities is None:
        raise UserError(
            f"predict {run.folder}: this run's read-out has no probabilities of labels. Leave out "
            "--probabilities and --top (in Python: probabilities and top)."
        )
    shares = {key: round(share, 4) for key, share in prediction.probabilities.items()}
    if detail.probabilities:
        answer["probabilities"] = shares if run.task.answer != "option" else list(shares.values())
    if detail.top:
        best = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[: detail.top]
        answer["top"] = [{"prediction": key, "probability": round(p, 4)} for key, p in best]
    return answer


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Progress]:
    """Yield a progress bar on standard error; it does not redirect standard output."""
    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=quiet, redirect_stdout=False
    ) as bar:
        bar.add_task("predicting", total=total)
        yield bar
