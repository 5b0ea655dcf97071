"""Finished runs that share one frozen backbone: the rows of a batch may name different ones.

ptrun predict RUN RUN --input rows.jsonl        the field `run` of a row names its run
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.folder.store import bound_to
from ptrun.method.base import Method
from ptrun.predicting.answering import Detail, answer_of
from ptrun.predicting.rows import Question, given
from ptrun.readout.base import Features
from ptrun.runs.finished import Finished
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

    def load(self, run: Finished) -> Loaded:
        """Return another run over the same backbone.

        Raises:
            UserError: it has another backbone, or changes it, or its tensors are damaged.
        """
        if run is self.first.run:
            return self.first
        self._check(run)
        own = replace(run, backbone=self.backbone, engine=self.engine)
        methods = own.placed()
        if any(self._is_alone(method, own) for method in methods.values()):
            raise UserError(f"{run.done.run_id} {_ALONE}")
        return Loaded(own, methods)

    def predict(self, rows: Sequence[tuple[Loaded, Example]]) -> list[Prediction]:
        """Return the prediction for each row, in order; rows of all runs share passes."""
        methods: list[Method] = []
        places: dict[int, list[int]] = {}
        features: dict[int, list[Features]] = {}
        for place, (own, example) in enumerate(rows):
            method, one = own.encoded(example)
            if all(method is not other for other in methods):
                methods.append(method)
            index = next(i for i, other in enumerate(methods) if other is method)
            places.setdefault(index, []).append(place)
            features.setdefault(index, []).append(one)
        answers = self.engine.predict(methods, [features[i] for i in range(len(methods))])
        self.backbone.kept.clear()  # cached features of these rows
        found = {
            place: value
            for index, values in enumerate(answers)
            for place, value in zip(places[index], values, strict=True)
        }
        return [found[place] for place in range(len(rows))]

    def _check(self, run: Finished) -> None:
        """Refuse another backbone, and a run that cannot share it.

        Raises:
            UserError: it cannot.
        """
        ours, theirs = bound_to(self.backbone), bound_to(run.backbone)
        pooler = "pooler_seed"
        same = self.backbone.pooler_seed == run.backbone.pooler_seed or self.backbone.has_pooler
        if ours != theirs:
            raise UserError(
                f"{run.done.run_id} was trained on {theirs['name']} ({theirs['weights']}), and "
                f"{self.first.id} on {ours['name']} ({ours['weights']}). Runs that share passes "
                "have one backbone."
            )
        if not same and run.readout.get("pooler") == "frozen":
            raise UserError(
                f"{run.done.run_id} has a random pooler of {pooler}={run.backbone.pooler_seed}, "
                f"and {self.first.id} of {self.backbone.pooler_seed}: it is a part of the backbone."
            )
        if any(self._is_alone(m, self.first.run) for m in self.first.methods.values()):
            raise UserError(f"{self.first.id} {_ALONE}")

    def _is_alone(self, method: Method, run: Finished) -> bool:
        return method.alone or type(method).shares(run.method, self.backbone) is None


_ALONE = "tunes or changes the backbone, so that it shares it with no other run. Ask it alone."


def together(runs: Sequence[Finished]) -> dict[str, Loaded]:
    """Return runs over one backbone, by id.

    Raises:
        UserError: two are one run, or as `Together.load`.
    """
    shared = Together(runs[0])
    found = {}
    for run in runs:
        own = shared.load(run)
        if own.id in found:
            raise UserError(f"{own.id} is given twice.")
        found[own.id] = own
    return found


_CHUNK = 256  # rows that are sorted by length and predicted together


def answers(
    shared: Together,
    runs: Mapping[str, Loaded],
    rows: Iterable[Mapping[str, Any]],
    detail: Detail,
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each row, in order, with its run.

    Raises:
        UserError: a row names no run or another one, or does not suit its task.
    """
    asked = (_asked(runs, row, number) for number, row in enumerate(rows, start=1))
    while chunk := list(islice(asked, _CHUNK)):
        found = shared.predict([(own, question.example) for own, question in chunk])
        for (own, question), one in zip(chunk, found, strict=True):
            yield {RUN: own.id, **answer_of(own.run, question, one, detail)}


def _asked(
    runs: Mapping[str, Loaded], row: Mapping[str, Any], number: int
) -> tuple[Loaded, Question]:
    name = row.get(RUN)
    fit = [own for own in runs if name and (own == name or own.endswith(f"-{name}"))]
    if len(fit) != 1:
        raise UserError(
            f"row {number}: {RUN}={shown(name)}; expected one of {', '.join(runs)}, or its last 8 "
            "digits."
        )
    (question,) = runs[fit[0]].asked([row])
    numbered = row.get("id", number)
    return runs[fit[0]], replace(question, id=numbered, number=number)
