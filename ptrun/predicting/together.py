"""Finished runs that share one frozen backbone: the rows of a batch may name different ones.

ptrun predict RUN RUN --input rows.jsonl        the field `run` of a row names its run
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ptrun.config.arguments import load
from ptrun.errors import UserError, shown
from ptrun.folder.find import fitting
from ptrun.folder.store import bound_to
from ptrun.method.base import Method
from ptrun.predicting.answering import Detail, answer_of, lengthened, ready
from ptrun.predicting.rows import Question, form_of, given, lines_to, question, readable
from ptrun.readout.base import Features, WordReader
from ptrun.readout.scores import Scores
from ptrun.runs.finished import Finished
from ptrun.task.own import Own
from ptrun.task.source import Row
from ptrun.task.table import FOUND, Given, table
from ptrun.types import Example, Prediction

RUN = "run"
"""The field of a row that names its run."""


@dataclass(frozen=True)
class Loaded:
    """A run whose methods are on the device, by part; `size` is their bytes."""

    run: Finished
    methods: Mapping[str, Method]

    @property
    def id(self) -> str:
        """The run's id."""
        return self.run.done.run_id

    @property
    def size(self) -> int:
        """The bytes of the parameters and buffers."""
        tensors = (t for m in self.methods.values() for t in (*m.parameters(), *m.buffers()))
        return sum(t.nbytes for t in tensors)

    def asked(self, rows: Iterable[Mapping[str, Any]], start: int = 1) -> list[Question]:
        """Return rows as checked examples; `start` is the number of the first."""
        return list(given(rows, self.run.task, frozenset(self.methods), start))

    def method(self, example: Example) -> Method:
        """Return the method of the part of an example."""
        return self.methods["" if "" in self.methods else str(example.group)]

    @cached_property
    def scored(self) -> Method:
        """Its method, read for the log-probability of each token of a prompt as it stands."""
        backbone = self.run.backbone
        if "" not in self.methods:
            why = "has a prompt for each relation"
        elif not (backbone.architecture.left_to_right and backbone.has_head):
            why = f"reads {backbone.family}, which predicts no token from those before it"
        elif self.methods[""].soft:
            why = "has its learned vectors inside a pattern, not before it"
        elif not isinstance(self.methods[""].readout, WordReader):
            why = "learned a head, and reads no words"
        elif self.run.done.manifest.get("texts_before"):
            why = "has texts before a row of its task"
        else:
            method = copy(self.methods[""])
            method.readout = Scores(backbone)
            return method
        raise UserError(f"echo: {self.id} {why}, so that it scores no prompt. Leave echo out.")


class Together:
    """One frozen backbone and the runs that are loaded over it.

    Args:
        first: the run whose backbone and engine all others use; its weights are loaded now.
    """

    def __init__(self, first: Finished):
        self.backbone, self.engine = first.backbone, first.engine
        self.first = Loaded(first, first.load())

    @property
    def alone(self) -> bool:
        """Whether the first run tunes or changes the backbone."""
        return any(self._is_alone(m, self.first.run) for m in self.first.methods.values())

    def load(self, run: Finished) -> Loaded:
        """Return another run over the same backbone, which neither of them changes."""
        if run is self.first.run:
            return self.first
        ours, theirs = bound_to(self.backbone), bound_to(run.backbone)
        if ours != theirs:
            raise UserError(
                f"{run.done.run_id} was trained on {theirs['name']} ({theirs['weights']}), and "
                f"{self.first.id} on {ours['name']} ({ours['weights']}). Runs that share passes "
                "have one backbone."
            )
        same = self.backbone.pooler_seed == run.backbone.pooler_seed or self.backbone.has_pooler
        if not same and run.readout.get("pooler") == "frozen":
            raise UserError(
                f"{run.done.run_id} has a random pooler of the seed {run.backbone.pooler_seed}, "
                f"and {self.first.id} of {self.backbone.pooler_seed}: it is a part of the backbone."
            )
        if self.alone:
            raise UserError(f"{self.first.id} {_ALONE}")
        run = replace(run, backbone=self.backbone, engine=self.engine)
        methods = run.placed()
        if any(self._is_alone(method, run) for method in methods.values()):
            raise UserError(f"{run.done.run_id} {_ALONE}")
        return Loaded(run, methods)

    def predict(self, rows: Sequence[tuple[Loaded, Example]]) -> list[Prediction]:
        """Return the prediction for each row, in order; rows of all runs share passes."""
        methods = [loaded.method(example) for loaded, example in rows]
        encoded: dict[int, tuple[Method, Features]] = {}
        for method, places in _grouped(methods).items():
            features = method.encode([rows[place][1] for place in places])
            encoded |= {p: (method, row) for p, row in zip(places, features, strict=True)}
        return self.answers([encoded[place] for place in range(len(rows))])

    def answers(self, rows: Sequence[tuple[Method, Features]]) -> list[Prediction]:
        """Return the prediction for each encoded row, in order."""
        groups = _grouped([method for method, _ in rows])
        features = [[rows[place][1] for place in places] for places in groups.values()]
        ordered: dict[int, Prediction] = {}
        answers = self.engine.predict(list(groups), features)
        for places, values in zip(groups.values(), answers, strict=True):
            ordered.update(zip(places, values, strict=True))
        self.backbone.kept.clear()  # cached features of these rows; the next rows differ
        return [ordered[place] for place in range(len(rows))]

    def _is_alone(self, method: Method, run: Finished) -> bool:
        return method.alone or type(method).shares(run.method, self.backbone) is None


def _grouped(methods: Sequence[Method]) -> dict[Method, list[int]]:
    """Return the places of each method."""
    places: dict[Method, list[int]] = {}
    for place, method in enumerate(methods):
        places.setdefault(method, []).append(place)
    return places


_ALONE = "tunes or changes the backbone, so that it shares it with no other run. Ask it alone."


def together(runs: Sequence[Finished]) -> tuple[Together, dict[str, Loaded]]:
    """Return the backbone of runs, and the runs by id."""
    shared = Together(runs[0])
    by_id: dict[str, Loaded] = {}
    for run in runs:
        loaded = shared.load(run)
        if loaded.id in by_id:
            raise UserError(f"{loaded.id} is given twice.")
        by_id[loaded.id] = loaded
    return shared, by_id


# The rows of a file; with several runs, the field `run` of a row names its run.

_CHUNK = 1024  # rows that are sorted by length and predicted together
_TEXTS = 32  # texts are shown as they are written


def predict(
    runs: Sequence[str],
    typed: Sequence[str],
    file: Path,
    output: Path | None,
    *,
    detail: Detail,
    form: Given = FOUND,
    submission: Path | None = None,
) -> None:
    """Write an answer for each row of a file, in order; every row is checked first.

    Args:
        runs: folders or ids; a row has the field `run` if there are several.
        typed: `KEY=VALUE` arguments, for all runs.
        file: the rows; `-` is standard input.
        output: a new file, whose suffix selects the form; None writes to standard output.
        detail: what an answer holds.
        form: what is known of a CSV; its quoting is that of the first run's task if it is None.
        submission: a folder; the file of a leaderboard is written there instead of `output`.
    """
    finished = [lengthened(ready(name, typed), detail.most) for name in runs]
    by_id = {run.done.run_id: run for run in finished}
    task = finished[0].task
    if isinstance(task, Own) and form.quoting is None:
        form = replace(form, quoting=task.form.quoting)
    shape = form_of(output, detail.top, raw=detail.raw)
    if submission is not None:
        if (papers := load("paper")) is None:
            raise UserError("predict --submission: no installed package has the command paper.")
        shape = papers.submission(task.name, task.labels, file)
        output = submission / shape.name
    with readable(file) as rows_file:
        read = table(rows_file, form)
        cells = read.kind in ("cells", "excel")
        total = sum(1 for _ in asked(by_id, read.rows(read.columns), cells=cells))
        shared, loaded = together(finished)
        if submission is not None:
            submission.mkdir(parents=True, exist_ok=True)
        quiet = not sys.stderr.isatty() or (output is None and sys.stdout.isatty())
        bar = Progress(
            *(TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()),
            console=Console(stderr=True),
            transient=True,
            disable=quiet,
            redirect_stdout=False,
        )
        shown = bar.add_task("predicting", total=total)
        with lines_to(output) as write, bar:
            rows = asked(by_id, read.rows(read.columns), cells=cells)
            for answered in chunks(shared, loaded, rows, detail):
                write(shape.lines(answered))
                bar.advance(shown, len(answered))
            write(shape.end())


def asked(
    runs: Mapping[str, Finished], rows: Iterable[Row], *, cells: bool = False
) -> Iterator[tuple[str, Question]]:
    """Yield the run and the question of each row; `cells` as in `question`."""
    parts = {run_id: frozenset(run.parts) for run_id, run in runs.items()}
    for number, row in enumerate(rows, start=1):
        run_id = next(iter(runs))
        if len(runs) > 1:
            fit = fitting(str(row.data.get(RUN)), runs)
            if len(fit) != 1:
                raise UserError(
                    f"{row.where}: {RUN}={shown(row.data.get(RUN))}; expected one of "
                    f"{', '.join(runs)}, or the start or the last 8 digits of one."
                )
            run_id = fit[0]
            row = Row(f"{row.where} ({run_id})", row.data)
        yield run_id, question(row, number, runs[run_id].task, parts[run_id], cells=cells)


def chunks(
    shared: Together,
    loaded: Mapping[str, Loaded],
    rows: Iterable[tuple[str, Question]],
    detail: Detail,
) -> Iterator[list[tuple[Question, dict[str, Any]]]]:
    """Yield questions with their answers, some rows at a time; rows of all runs share passes."""
    left = iter(rows)
    writes = any(each.run.task.answer == "text" for each in loaded.values())
    while chunk := list(islice(left, _TEXTS if writes else _CHUNK)):
        values = shared.predict([(loaded[name], question.example) for name, question in chunk])
        answered = []
        for (name, row), value in zip(chunk, values, strict=True):
            answer = answer_of(loaded[name].run, row, value, detail)
            answered.append((row, {RUN: name, **answer} if len(loaded) > 1 else answer))
        yield answered
