"""The files of predictions that the servers of GLUE and SuperGLUE take.

GLUE takes a TSV with the columns `index` and `prediction`, SuperGLUE JSON lines with `idx` and
`label`. MultiRC's answers are gathered by passage and question. Rows are named by their field `idx`
or `index`, as the published test files and the hub's copies have it; without one, by their number
from 0.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.predicting.rows import Answered, JsonLines, Question

_LOG = logging.getLogger(__name__)

OFFICIAL: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {
    "glue_cola": ("CoLA.tsv", 1063, {"unacceptable": 0, "acceptable": 1}),
    "glue_sst2": ("SST-2.tsv", 1821, {"negative": 0, "positive": 1}),
    "glue_mrpc": ("MRPC.tsv", 1725, {"not_equivalent": 0, "equivalent": 1}),
    "glue_stsb": ("STS-B.tsv", 1379, {}),
    "glue_qqp": ("QQP.tsv", 390_965, {"not_duplicate": 0, "duplicate": 1}),
    "glue_mnli": ("MNLI-m.tsv", 9796, {}),
    "glue_qnli": ("QNLI.tsv", 5463, {}),
    "glue_rte": ("RTE.tsv", 3000, {}),
    "boolq": ("BoolQ.jsonl", 3245, {"no": "false", "yes": "true"}),
    "cb": ("CB.jsonl", 250, {}),
    "copa": ("COPA.jsonl", 500, {}),
    "multirc": ("MultiRC.jsonl", 9693, {"wrong": 0, "right": 1}),
    "record": ("ReCoRD.jsonl", 10_000, {}),
    "rte": ("RTE.jsonl", 3000, {}),
    "wic": ("WiC.jsonl", 1400, {"different": "false", "same": "true"}),
    "wsc": ("WSC.jsonl", 146, {"different": "False", "same": "True"}),
}
"""The file of a task: its name, the rows of the hidden test, and the labels it holds."""


class Submission(JsonLines):
    """The file of one task, by its name and labels; a task without a leaderboard is refused.

    MNLI's mismatched test is known by the name of the `file` of rows.
    """

    def __init__(self, task: str, labels: Sequence[str], file: Path):
        if task not in OFFICIAL:
            raise UserError(
                f"--submission: task={task} has no leaderboard file. Tasks with one: "
                f"{', '.join(OFFICIAL)}."
            )
        self.name, self.rows, self.forms = OFFICIAL[task]
        if task == "glue_mnli" and re.search("mismatched|mnli[-_]mm", file.name.lower()):
            self.name, self.rows = "MNLI-mm.tsv", 9847
        self.task, self.file, self.is_table = task, file, self.name.endswith(".tsv")
        self.labels = (0, 1) if task == "copa" else labels  # the two options of COPA
        self.seen: set[tuple[int, ...]] = set()
        self.passages: dict[int, dict[int, list[dict[str, Any]]]] = {}
        self.unlabelled = 0

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield a line for each answer; GLUE's header before the first; MultiRC's come last."""
        if not self.seen and self.is_table:
            yield "index\tprediction"
        for question, answer in answered:
            index, value = self._index(question), self._value(answer["prediction"])
            if self.task == "multirc":
                passage, asked, option = index
                options = self.passages.setdefault(passage, {}).setdefault(asked, [])
                options.append({"idx": option, "label": value})
            elif self.is_table:
                yield f"{index[0]}\t{value}"
            else:
                yield json.dumps({"idx": index[0], "label": value})

    def end(self) -> Iterator[str]:
        """Yield MultiRC's passages; warn about a wrong number of rows, and words of no label."""
        for idx, asked in self.passages.items():
            answers = [{"idx": number, "answers": options} for number, options in asked.items()]
            yield json.dumps({"idx": idx, "passage": {"questions": answers}})
        if len(self.seen) != self.rows:
            _LOG.warning(
                "%s: %d rows; the hidden test of %s has %d, and its server takes all of them.",
                *(self.file, len(self.seen), self.task, self.rows),
            )
        if self.unlabelled:
            _LOG.warning(
                "%s: for %d rows the model wrote a word of no label; they have the label %s.",
                *(self.file, self.unlabelled, self.labels[0]),
            )

    def _value(self, value: Any) -> Any:
        if self.task == "glue_stsb":
            return f"{min(max(float(value), 0.0), 5.0):.3f}"
        if self.labels and value not in self.labels:
            self.unlabelled += 1
            value = self.labels[0]
        return self.forms[value] if self.forms else value

    def _index(self, question: Question) -> tuple[int, ...]:
        """Return the index of a row as its file has it, else its number from 0; note it."""
        where, data = f"row {question.number}", question.data
        idx: Any = next((data[k] for k in ("idx", "index") if k in data), question.number - 1)
        values: list[Any] = [idx]
        if self.task == "multirc":
            if not isinstance(idx, Mapping):
                raise UserError(
                    f"{where}: idx is {shown(idx)}; MultiRC needs an object such as "
                    '{"paragraph": 0, "question": 0, "answer": 0}.'
                )
            values = [idx.get(part) for part in ("paragraph", "question", "answer")]
        elif self.task == "record" and isinstance(idx, Mapping):
            values = [idx.get("query")]
        numbers = []
        for value in values:
            is_text = isinstance(value, str) and value.isascii() and value.isdigit()  # of a TSV
            number = int(value) if is_text else value
            if type(number) is not int or number < 0:
                raise UserError(
                    f"{where}: idx is {shown(value)}; expected a whole number, 0 or more."
                )
            numbers.append(number)
        index = tuple(numbers)
        if index in self.seen:
            name = index if len(index) > 1 else index[0]
            raise UserError(f"{where}: the index {name} appears twice; remove one.")
        self.seen.add(index)
        return index
