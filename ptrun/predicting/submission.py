"""The files of predictions that the servers of GLUE and SuperGLUE take.

GLUE takes a TSV with the columns `index` and `prediction`, SuperGLUE JSON lines with `idx` and
`label`. MultiRC's answers are gathered by passage and question. Rows are named by their field `idx`
or `index`, as the published test files and the hub's copies have it; without one, by their number
from 0.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.predicting.questions import Question
from ptrun.predicting.writing import Answered
from ptrun.task.shown import shown

_LOG = logging.getLogger(__name__)
_KEYS = ("idx", "index")
_MISMATCHED = ("mismatched", "mnli-mm", "mnli_mm")
_FALSE_TRUE = {"different": "false", "same": "true"}


@dataclass(frozen=True)
class Official:
    """The file of a task: its name, the rows of the hidden test, and the labels it holds."""

    name: str
    rows: int
    labels: Mapping[str, Any] = field(default_factory=dict)


_OFFICIAL = {
    "glue_cola": Official("CoLA.tsv", 1063, {"unacceptable": 0, "acceptable": 1}),
    "glue_sst2": Official("SST-2.tsv", 1821, {"negative": 0, "positive": 1}),
    "glue_mrpc": Official("MRPC.tsv", 1725, {"not_equivalent": 0, "equivalent": 1}),
    "glue_stsb": Official("STS-B.tsv", 1379),
    "glue_qqp": Official("QQP.tsv", 390_965, {"not_duplicate": 0, "duplicate": 1}),
    "glue_mnli": Official("MNLI-m.tsv", 9796),
    "glue_qnli": Official("QNLI.tsv", 5463),
    "glue_rte": Official("RTE.tsv", 3000),
    "boolq": Official("BoolQ.jsonl", 3245, {"no": "false", "yes": "true"}),
    "cb": Official("CB.jsonl", 250),
    "copa": Official("COPA.jsonl", 500),
    "multirc": Official("MultiRC.jsonl", 9693, {"wrong": 0, "right": 1}),
    "record": Official("ReCoRD.jsonl", 10_000),
    "rte": Official("RTE.jsonl", 3000),
    "wic": Official("WiC.jsonl", 1400, _FALSE_TRUE),
    "wsc": Official("WSC.jsonl", 146, {"different": "False", "same": "True"}),
}
_MISMATCHED_FILE = Official("MNLI-mm.tsv", 9847)


class Submission:
    """The file of one task.

    Args:
        task: the name of the run's task.
        labels: the labels of the task, if it has any.
        file: the rows; MNLI's mismatched test is known by its name.

    Raises:
        UserError: the task has no such file.
    """

    def __init__(self, task: str, labels: Sequence[str], file: Path):
        official = _OFFICIAL.get(task)
        if official is None:
            raise UserError(
                f"--submission: task={task} has no leaderboard file. Tasks with one: "
                f"{', '.join(_OFFICIAL)}."
            )
        if task == "glue_mnli" and any(part in file.name.lower() for part in _MISMATCHED):
            official = _MISMATCHED_FILE
        self.task, self.official, self.name = task, official, official.name
        self.seen: set[str] = set()
        self.passages: dict[int, dict[int, list[dict[str, Any]]]] = {}
        self.labels = (0, 1) if task == "copa" else labels  # the two options of COPA
        self.file, self.others = file, 0

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield a line for each answer; GLUE's header before the first; MultiRC's come last.

        Raises:
            UserError: an index is no number, or appears twice.
        """
        if not self.seen and self.name.endswith(".tsv"):
            yield "index\tprediction"
        for question, answer in answered:
            value = self._value(answer["prediction"])
            if self.task == "multirc":
                self._gather(question, value)
            elif self.name.endswith(".tsv"):
                yield f"{self._index(question)}\t{value}"
            else:
                yield json.dumps({"idx": self._index(question), "label": value})

    def end(self) -> Iterator[str]:
        """Yield MultiRC's passages; warn about a wrong number of rows, and words of no label."""
        for idx, questions in self.passages.items():
            asked = [{"idx": one, "answers": own} for one, own in questions.items()]
            yield json.dumps({"idx": idx, "passage": {"questions": asked}})
        if len(self.seen) != self.official.rows:
            _LOG.warning(
                "%s: %d rows; the hidden test of %s has %d, and its server takes all of them.",
                *(self.file, len(self.seen), self.task, self.official.rows),
            )
        if self.others:
            _LOG.warning(
                "%s: for %d rows the model wrote a word of no label; they have the label %s.",
                *(self.file, self.others, self.labels[0]),
            )

    def _value(self, value: Any) -> Any:
        if self.task == "glue_stsb":
            return f"{min(max(float(value), 0.0), 5.0):.3f}"
        if self.labels and value not in self.labels:
            self.others += 1
            value = self.labels[0]
        return self.official.labels[value] if self.official.labels else value

    def _index(self, question: Question) -> int:
        found = _found(question)
        if self.task == "record" and isinstance(found, Mapping):
            found = found.get("query")
        index = _number(found, question)
        self._new(index, question)
        return index

    def _gather(self, question: Question, value: int) -> None:
        found = _found(question)
        if not isinstance(found, Mapping):
            raise UserError(
                f"row {question.number}: idx is {shown(found)}; MultiRC needs an object such as "
                '{"paragraph": 0, "question": 0, "answer": 0}.'
            )
        parts = [_number(found.get(key), question) for key in ("paragraph", "question", "answer")]
        passage, asked, answer = parts
        self._new(tuple(parts), question)
        own = self.passages.setdefault(passage, {}).setdefault(asked, [])
        own.append({"idx": answer, "label": value})

    def _new(self, index: int | tuple[int, ...], question: Question) -> None:
        """Note an index; refuse one that an earlier row has."""
        if str(index) in self.seen:
            raise UserError(f"row {question.number}: the index {index} appears twice; remove one.")
        self.seen.add(str(index))


def _found(question: Question) -> Any:
    """Return the index of a row as its file has it, else its number from 0."""
    return next((question.data[key] for key in _KEYS if key in question.data), question.number - 1)


def _number(value: Any, question: Question) -> int:
    """Return an index as a number; a TSV has it as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if type(value) is not int or value < 0:
        raise UserError(
            f"row {question.number}: idx is {shown(value)}; expected a whole number, 0 or more."
        )
    return value
