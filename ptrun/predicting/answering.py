"""Predictions of a finished run for the rows of a file, about a thousand rows at a time."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ptrun.method.base import Method
from ptrun.predicting.loading import ready
from ptrun.predicting.questions import Question, questions
from ptrun.predicting.writing import lines_to
from ptrun.run.finished import Finished
from ptrun.types import Example, Prediction

_CHUNK = 1024  # rows that are sorted by length and predicted together


def predict(given: str, typed: Sequence[str], file: Path, output: Path | None) -> None:
    """Write a JSON line for each row of a file, in order.

    Args:
        given: the run's folder or id.
        typed: `KEY=VALUE` arguments.
        file: the rows.
        output: a new file; None writes to standard output.

    Raises:
        UserError: the run cannot predict, a row does not suit its task, or `output` exists.
    """
    run = ready(given, typed)
    parts = frozenset(run.parts)
    total = sum(1 for _ in questions(file, run.task, parts))  # checks every row first
    quiet = not sys.stderr.isatty() or (output is None and sys.stdout.isatty())
    with lines_to(output) as lines, _bar(total, quiet=quiet) as bar:
        methods = run.load()
        rows = questions(file, run.task, parts)
        while chunk := list(islice(rows, _CHUNK)):
            found = predictions(run, methods, [row.example for row in chunk])
            lines.write(_line(run, *pair) for pair in zip(chunk, found, strict=True))
            bar.advance(bar.task_ids[0], len(chunk))


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


def _line(run: Finished, question: Question, prediction: Prediction) -> str:
    line: dict[str, Any] = {"id": question.id, "answer": prediction.value}
    if run.task.kind == "choice":
        line["option"] = question.example.fields["options"][prediction.value]
    if prediction.probability is not None:
        line["probability"] = round(prediction.probability, 4)
    return json.dumps(line, ensure_ascii=False)


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
