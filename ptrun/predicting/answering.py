"""Answers of a finished run to the rows of a file, some hundred rows at a time."""

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

_TOGETHER = 1024  # rows that are sorted by length and answered together


def predict(given: str, typed: Sequence[str], file: Path, output: Path | None) -> None:
    """Write a JSON line for each row of a file, in order.

    Raises:
        UserError: the run cannot be asked, a row is not what its task reads, or output is taken.
    """
    run = ready(given, typed)
    parts = frozenset(run.parts)
    total = sum(1 for _ in questions(file, run.task, parts))  # each is checked by now
    quiet = not sys.stderr.isatty() or (output is None and sys.stdout.isatty())
    with lines_to(output) as lines, _bar(total, quiet=quiet) as bar:
        methods = run.load()
        rows = questions(file, run.task, parts)
        while some := list(islice(rows, _TOGETHER)):
            found = answers(run, methods, [one.example for one in some])
            lines.write(told(run, one, own) for one, own in zip(some, found, strict=True))
            bar.advance(bar.task_ids[0], len(some))


def answers(
    run: Finished, methods: Mapping[str, Method], examples: Sequence[Example]
) -> list[Prediction]:
    """Return an answer for each example, by the method of its part."""
    places: dict[str, list[int]] = {}
    for place, example in enumerate(examples):
        places.setdefault("" if "" in methods else str(example.group), []).append(place)
    asked = [methods[part] for part in places]
    features = [methods[p].encode([examples[i] for i in own]) for p, own in places.items()]
    found: dict[int, Prediction] = {}
    for own, said in zip(places.values(), run.engine.predict(asked, features), strict=True):
        found.update(zip(own, said, strict=True))
    run.backbone.kept.clear()  # what frozen passes found: other rows come next
    return [found[place] for place in range(len(examples))]


def told(run: Finished, question: Question, answer: Prediction) -> str:
    """Return the line of an answer."""
    line: dict[str, Any] = {"id": question.id, "answer": answer.value}
    if run.task.kind == "choice":
        line["option"] = question.example.fields["options"][answer.value]
    if answer.probability is not None:
        line["probability"] = round(answer.probability, 4)
    return json.dumps(line, ensure_ascii=False)


@contextmanager
def _bar(total: int, *, quiet: bool) -> Iterator[Progress]:
    """Yield a bar on standard error that leaves standard output alone."""
    columns = (TextColumn("answering"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=quiet, redirect_stdout=False
    ) as bar:
        bar.add_task("answering", total=total)
        yield bar
