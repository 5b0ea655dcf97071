"""Finished runs that share one frozen backbone: the rows of a batch may name different ones.

ptrun predict RUN RUN --input rows.jsonl        the field `run` of a row names its run
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.folder.store import bound_to
from ptrun.method.base import Method
from ptrun.predicting.answering import Detail, answer_of, in_passes, lengthened, ready
from ptrun.predicting.rows import Question, form_of, given, lines_to, readable
from ptrun.readout.base import Features
from ptrun.runs.finished import Finished
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

    def asked(self, rows: Sequence[Mapping[str, Any]]) -> list[Question]:
        """Return rows as checked examples.

        Raises:
            UserError: a row does not suit the run's task.
        """
        return list(given(rows, self.run.task, frozenset(self.methods)))

    def encoded(self, example: Example) -> tuple[Method, Features]:
        """Return an example as the method of its part reads it."""
        method = self.methods["" if "" in self.methods else str(example.group)]
        (features,) = method.encode([example])
        return method, features


class Together:
    """One frozen backbone and the runs that are loaded over it.

    Args:
        first: the run whose backbone and engine all others use; its weights are loaded now.

    Raises:
        UserError: the weights cannot be read.
    """

    def __init__(self, first: Finished):
        self.backbone, self.engine = first.backbone, first.engine
        self.first = Loaded(first, first.load())

    @property
    def alone(self) -> bool:
        """Whether the first run tunes or changes the backbone."""
        return any(self._is_alone(m, self.first.run) for m in self.first.methods.values())

    def load(self, run: Finished) -> Loaded:
        """Return another run over the same backbone.

        Raises:
            UserError: it has another backbone, or changes it, or its tensors are damaged.
        """
        if run is self.first.run:
            return self.first
        self._check(run)
        run = replace(run, backbone=self.backbone, engine=self.engine)
        methods = run.placed()
        if any(self._is_alone(method, run) for method in methods.values()):
            raise UserError(f"{run.done.run_id} {_ALONE}")
        return Loaded(run, methods)

    def predict(self, rows: Sequence[tuple[Loaded, Example]]) -> list[Prediction]:
        """Return the prediction for each row, in order; rows of all runs share passes."""
        return self.answers([loaded.encoded(example) for loaded, example in rows])

    def answers(self, rows: Sequence[tuple[Method, Features]]) -> list[Prediction]:
        """Return the prediction for each encoded row, in order."""
        return in_passes(self.engine, rows)

    def _check(self, run: Finished) -> None:
        """Refuse another backbone, and a run that cannot share it."""
        ours, theirs = bound_to(self.backbone), bound_to(run.backbone)
        same = self.backbone.pooler_seed == run.backbone.pooler_seed or self.backbone.has_pooler
        if ours != theirs:
            raise UserError(
                f"{run.done.run_id} was trained on {theirs['name']} ({theirs['weights']}), and "
                f"{self.first.id} on {ours['name']} ({ours['weights']}). Runs that share passes "
                "have one backbone."
            )
        if not same and run.readout.get("pooler") == "frozen":
            raise UserError(
                f"{run.done.run_id} has a random pooler of the seed {run.backbone.pooler_seed}, "
                f"and {self.first.id} of {self.backbone.pooler_seed}: it is a part of the backbone."
            )
        if self.alone:
            raise UserError(f"{self.first.id} {_ALONE}")

    def _is_alone(self, method: Method, run: Finished) -> bool:
        return method.alone or type(method).shares(run.method, self.backbone) is None


_ALONE = "tunes or changes the backbone, so that it shares it with no other run. Ask it alone."


def together(runs: Sequence[Finished]) -> tuple[Together, dict[str, Loaded]]:
    """Return the backbone of runs, and the runs by id.

    Raises:
        UserError: two are one run, or as `Together.load`.
    """
    shared = Together(runs[0])
    by_id: dict[str, Loaded] = {}
    for run in runs:
        loaded = shared.load(run)
        if loaded.id in by_id:
            raise UserError(f"{loaded.id} is given twice.")
        by_id[loaded.id] = loaded
    return shared, by_id


# Rows whose field `run` names their run.

_CHUNK = 256  # rows that are sorted by length and predicted together
Asked = tuple[Loaded, Question]


def predict_together(
    given_runs: Sequence[str],
    typed: Sequence[str],
    file: Path,
    output: Path | None,
    *,
    detail: Detail,
    form: Given = FOUND,
) -> None:
    """Write an answer for each row of a file, in order; every row is checked first.

    Args:
        given_runs: folders or ids.
        typed: `KEY=VALUE` arguments, for all runs.
        file: the rows; `-` is standard input.
        output: a new file, whose suffix selects the form; None writes to standard output.
        detail: what an answer holds.
        form: what is known of a CSV.

    Raises:
        UserError: a run cannot predict or not share the backbone, a row does not suit its run, or
            `output` exists.
    """
    shared, runs = together([lengthened(ready(name, typed), detail.most) for name in given_runs])
    lines = form_of(output, detail.top, raw=detail.raw)
    with readable(file) as rows_file, lines_to(output) as out:
        read = table(rows_file, form)
        for _ in asked(runs, read.rows(read.columns)):
            pass
        for answered in chunks(shared, asked(runs, read.rows(read.columns)), detail):
            out.write(lines.lines(answered))
        out.write(lines.end())


def asked(runs: Mapping[str, Loaded], rows: Iterable[Row]) -> Iterator[Asked]:
    """Yield each row's run and question.

    Raises:
        UserError: a row names no run or another one, or does not suit its task.
    """
    for number, row in enumerate(rows, start=1):
        name = row.data.get(RUN)
        fit = [run for run in runs if name and (run == name or run.endswith(f"-{name}"))]
        if len(fit) != 1:
            raise UserError(
                f"row {number}: {RUN}={shown(name)}; expected one of {', '.join(runs)}, or the "
                "last 8 digits of one."
            )
        try:
            (question,) = runs[fit[0]].asked([row.data])
        except UserError as error:
            text = str(error).removeprefix("row 1")
            raise UserError(f"row {number} ({fit[0]}){text}") from error
        named = question.id if "id" in row.data else number
        yield runs[fit[0]], replace(question, id=named, number=number)


def chunks(
    shared: Together, rows: Iterable[Asked], detail: Detail
) -> Iterator[list[tuple[Question, dict[str, Any]]]]:
    """Yield questions with their answers, which have the run; rows of all runs share passes."""
    left = iter(rows)
    while chunk := list(islice(left, _CHUNK)):
        values = shared.predict([(loaded, question.example) for loaded, question in chunk])
        yield [
            (question, {RUN: loaded.id, **answer_of(loaded.run, question, value, detail)})
            for (loaded, question), value in zip(chunk, values, strict=True)
        ]
