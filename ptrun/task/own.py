"""The user's own data: a label, a number or a text for a text or two, one table file a part.

How a label is read is in `ptrun.task.label`; `skip` leaves out rows whose label means none.
"""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from ptrun.errors import UserError, names, near, shown
from ptrun.hub.repository import Repository
from ptrun.metrics import accuracy, entity_scores, macro_f1, word_scores
from ptrun.task.classification import correlations
from ptrun.task.columns import gathered, targets_of
from ptrun.task.conversation import BESIDE, EMPTY, TURNS, answered, asked, turns_of
from ptrun.task.dataset import MESSAGES, PARTS, Part, Scores, Task, is_texts
from ptrun.task.generation import references, written_pvps
from ptrun.task.label import (
    NO_LABEL,
    bare,
    check_labels,
    doubts,
    is_number,
    label_text,
    listed,
    normal,
    skipping,
)
from ptrun.task.lines import unpacked_name
from ptrun.task.multilabel import METRICS, MultilabelMetric, in_order, label_scores, labels_of
from ptrun.task.own_pattern import entry
from ptrun.task.source import LEFT_OUT, VERDICT, Account, HubTable, Row
from ptrun.task.table import Given, Quoting, Table, table
from ptrun.task.tag_schemes import iob2, marks_spans
from ptrun.task.text_metrics import AnswersBy, TextMetric, signatures, text_scores
from ptrun.types import Example, Labels, Prediction

_LOG = logging.getLogger(__name__)


_ID = "id"  # a column that names the rows
_YAML_NONE = {"null", "none", "~"}
_COMMA = re.compile(r"-?\d+(,\d+)?")
_SHOWN, _FEW = 5, 20  # rows or tags that are named; tags that need no rows
Column = str | int
Kind = Literal["classification", "multilabel", "regression", "tagging", "tags"]
_LabelMetric = Literal["accuracy", "pearson_spearman", "pearson", "spearman"]
Metric = _LabelMetric | MultilabelMetric | TextMetric
_METRICS: dict[str, Sequence[Metric]] = {
    "classification": ("accuracy", "macro_f1"),
    "multilabel": METRICS,
    "regression": ("pearson_spearman", "pearson", "spearman"),
    "generation": get_args(TextMetric),
    "tagging": ("f1",),
    "tags": ("accuracy", "macro_f1"),
}
_ANSWERS = {"classification": "label", "multilabel": "labels"}
_ANSWERS |= {"regression": "number", "generation": "text"}
_ANSWERS |= {"tagging": "tags", "tags": "word_labels"}


class Words:
    """How words and tags of a row are read, and predicted tags scored.

    Args:
        tokens, tags: the columns; a cell is a list, in a CSV as JSON, Python or numpy writes it.
        names: the tags in the order of their numbers.
        kind: `tagging` if tags of any scheme mark spans, which are read as IOB2; else `tags`.
    """

    def __init__(self, tokens: str, tags: str, names: Sequence[str], kind: str = "tags"):
        self.tokens, self.tags, self.spans = tokens, tags, kind == "tagging"
        self._names = dict(enumerate(names))

    def words(self, row: Row) -> list[str]:
        """Return the words; none if one of them is empty."""
        words = listed(row.data.get(self.tokens)) or []
        if words and not is_texts(words):
            raise row.wrong(self.tokens, 'the words of one sentence, such as ["Ann", "left"]')
        return words if all(map(str.strip, words)) else []

    def labels(self, row: Row) -> list[str]:
        """Return the tags; none if one of them is empty."""
        raws = listed(row.data.get(self.tags)) or []
        if not isinstance(raws, list) or any(isinstance(raw, list | dict) for raw in raws):
            raise row.wrong(self.tags, "a list with a tag for each word")
        raws = [self._names.get(raw, raw) if type(raw) is int else raw for raw in raws]
        tags = ["" if raw is None else normal(raw) for raw in raws]
        tags = tags if all(tags) else []
        return iob2(tags) if self.spans and marks_spans(tags) else tags

    def target(self, row: Row) -> list[str]:
        """Return the tags, as many as words."""
        words, tags = self.words(row), self.labels(row)
        if len(words) != len(tags):
            counts = f"{len(words)} words in {self.tokens} and {len(tags)} tags in {self.tags}"
            raise UserError(f"{row.where}: {counts}; give each word one, or delete the row.")
        return tags

    def every(self, tags: Iterable[str]) -> list[str]:
        """Return the labels of a task with some tags: of spans `O`, and `B-` and `I-` of a type."""
        marked = (tag[2:] or "_" if marks_spans([tag]) else tag for tag in tags if tag != "O")
        types = dict.fromkeys(marked)
        return ["O", *(f"{x}-{name}" for name in types for x in "BI")] if self.spans else [*tags]

    def score(self, guesses: Sequence[Any], golds: Sequence[Any]) -> Scores:
        """Return F1, precision and recall of spans, or accuracy and macro F1 of words; 0-100."""
        return (entity_scores if self.spans else word_scores)(guesses, golds)

    def kind(self, table: Table | HubTable, skip: Collection[str], typed: str) -> str:
        """Return the kind of a table; it is the `typed` one if the first full row has no words.

        Raises:
            UserError: some tags mark spans and others do not, or they are numbers without names.
        """
        if typed == "classification":
            rows = table.rows([self.tokens, self.tags])
            for row in rows:
                cells = [listed(row.data.get(name)) for name in (self.tokens, self.tags)]
                if all(cells):
                    break
            is_words = is_texts(cells[0]) and isinstance(cells[1], list)
            if not is_words or next(rows, None) is None:  # one row of lists is columns
                return typed
        counts = Counter(tag for row in table.rows([self.tags]) for tag in self.labels(row))
        tags = sorted(counts.keys() - skip, key=lambda tag: (counts[tag], tag))
        spans = [tag for tag in tags if tag == "O" or (tag[1:] and marks_spans([tag]))]
        others, are_numbers = [t for t in tags if t not in spans], all(map(is_number, tags))
        place = f"{table.file}: {self.tags} has {names(f'{t} ({counts[t]})' for t in tags)}"
        if not 1 < len(tags) <= max(_FEW, counts.total() / 2):
            raise UserError(f"{place}; a task has two tags or more, each of many words.")
        if typed != "tags" and marks_spans(tags):
            return "tagging"
        if typed == "tags" or not (typed == "tagging" or spans or are_numbers):
            return "tags"
        advice = f"Correct the others, type {skipping(others[:_SHOWN])} to leave their rows out,"
        if are_numbers:
            advice = "Type the names of the numbers in order, 'task.labels=[O,B-PER,I-PER]',"
        raise UserError(
            f"{place}; tags of spans are O, B-TYPE and I-TYPE, or those of another scheme.\n"
            f"{advice} or task.kind=tags to learn all as labels of words."
        )


class Own(Task):
    """Classification, regression or generation for the user's own rows.

    The labels are those of the training file, sorted.

    Args:
        data_dir: not used; each file has its own path, relative to the working directory.
        variant: refused; a setting with its own files has none for this task.
        train, dev, test: table files (`ptrun.task.table`); null means none.
        text: the column of the text, or two columns.
        label: the column of the label or number; with `kind=multilabel` of the labels, or a list of
            columns with 0 and 1 (`ptrun.task.multilabel`).
        answer: instead of `label`, the column of a text to write: a text, or a list of references.
        messages: instead of text and answer, the column of a conversation
            (`ptrun.task.conversation`).
        kind: whether `label` holds labels, numbers, several labels a row, or a tag for each word of
            `text` (`Words`), which is also found from lists in both columns.
        metric: the metric that selects; null is the first of the kind: accuracy or macro_f1 of
            labels; pearson_spearman (their mean), pearson or spearman of numbers; of several labels
            micro_f1, macro_f1, subset_accuracy or average_precision; of texts f1 or another one of
            `ptrun.task.text_metrics`; f1 of spans.
        answers_by: how metrics of texts divide them into tokens; see `AnswersBy` there.
        skip: labels that mean "no label"; their rows are left out and counted.
        empty: what becomes of rows with an empty text or label.
        pattern: a pattern (`ptrun.pattern.pattern`) over the text columns, or `@FILE` with a
            pattern and perhaps label words; it becomes the PVP `own`.
        name: the task's name in tables and folders; null means the training file's name.
        separator, quoting, columns, encoding: of a CSV; see `ptrun.task.table.Given`.
        hub: a data set of the hub; train, dev and test are then the names of its splits.
        subset, revision: of that data set.
        source_language, target_language: those of a text and of its answer, as the tokenizer of an
            mBART, NLLB or M2M100 names them.
        labels: all labels, of numbered tags in order; null means those of the training file.

    The id of an example is that of the column `id`, if the file has one, else part and number.
    Rows that Prodigy's column `answer` rejects or ignores are left out, unless a key names it.
    """

    version, unit, finds_labels = 1, 1.0, True
    reads: Sequence[str] = ()

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        train: str | None,
        dev: str | None = None,
        test: str | None = None,
        text: Column | list[Column] | None = None,
        label: Column | list[Column] | None = None,
        answer: Column | None = None,
        messages: Column | None = None,
        kind: Kind = "classification",
        metric: Metric | None = None,
        answers_by: AnswersBy = "auto",
        skip: list[Any] | None = None,
        empty: Literal["refuse", "skip"] = "refuse",
        pattern: str | None = None,
        name: str | None = None,
        separator: str | None = None,
        quoting: Quoting = None,
        columns: list[Column] | None = None,
        encoding: str | None = None,
        hub: str | None = None,
        subset: str | None = None,
        revision: str = "main",
        source_language: str | None = None,
        target_language: str | None = None,
        labels: list[str] | None = None,
    ):
        # 1) keys that are missing, or exclude each other
        beside = any(key is not None for key in (label, text, answer, pattern))
        refusals = {
            "task=hub: no data set. Type task.hub=ORG/NAME task.text=COLUMN.": hub == "",
            "task=csv: no training file. Type task.train=FILE task.text=COLUMN task.label=COLUMN; "
            "FILE is CSV, TSV, JSON, parquet, Arrow or Excel. A data set of the hub is task=hub "
            "task.hub=ORG/NAME.": train is None and labels is None,
            f"setting={variant} has its own files, none for task=csv; use setting=full.": variant,
            f"task.label={shown(label)}: expected one column. For a column of 0 and 1 for each "
            "label, type task.kind=multilabel.": isinstance(label, list) and kind != "multilabel",
            f"task.label={label} task.answer={answer}: leave one out.": None not in (answer, label),
            f"task.messages={messages} is a whole conversation; leave task.text, task.label, "
            "task.answer and task.pattern out.": messages is not None and beside,
        }
        for refusal, is_wrong in refusals.items():
            if is_wrong:
                raise UserError(refusal)
        # 2) the files, and how they are read
        self.form = Given(separator, quoting, [str(c) for c in columns or []] or None, encoding)
        places: dict[str, str | None] = {"train": train, "dev": dev, "test": test}
        self._places = {part: place for part, place in places.items() if place is not None}
        self._hub = None if hub is None else Repository("dataset", hub, revision, group="task")
        self._subset = subset
        self._tables: dict[str, Table | HubTable] = {}
        file_name = re.split(r"[-_.]*\*", unpacked_name(Path(train or "csv")).stem)[0] or "csv"
        self.name = name or (hub.rpartition("/")[2] if hub else file_name)
        # 3) the kind of task
        if train and kind == "classification" and (text or label or answer or messages) is None:
            self.recognised = columns_of(self._table("train"))
            text, answer, messages = map(self.recognised.get, ("text", "answer", "messages"))
        written = answer if messages is None else messages
        self.kind = kind if written is None else "generation"
        # 4) labels, columns and metric
        self._labels, self._empty = labels, empty
        self.source_language, self.target_language = source_language, target_language
        self._skip = {normal(value) for value in skip or []}
        self._no_label = {value.lower() for value in self._skip} & NO_LABEL
        self._no_label |= _YAML_NONE & NO_LABEL if None in (skip or []) else set()
        self._each = [str(column) for column in label] if isinstance(label, list) else []
        column = next(iter(label), None) if isinstance(label, list) else label
        self.reads, self._label = self._columns(
            text if messages is None else messages, column if written is None else written
        )
        self._words = self._recognised_words(pattern)
        self.answer, self.stratified = _ANSWERS[self.kind], _ANSWERS[self.kind].startswith("label")
        allowed = _METRICS[self.kind]
        if metric is not None and metric not in allowed:
            raise UserError(f"task.metric={metric}: task.kind={self.kind} has {names(allowed)}.")
        if answers_by != "auto" and self.kind != "generation":
            raise UserError(f"task.answers_by={answers_by} is of texts to write; leave it out.")
        self.metric: Metric = metric or allowed[0]
        self.answers_by = answers_by
        self.metrics: Any = [*dict.fromkeys((self.metric, "f1", "exact_match"))]  # of texts
        # 5) patterns
        self.pvps: Mapping[str, Any] = {} if pattern is None else {"own": entry(pattern)}
        if self.kind == "generation" and not self.pvps:
            cells = [*dict.fromkeys([*self.reads, self._label])]
            turns = train is not None and are_turns(self._table("train"), cells)
            self.pvps = {} if turns or messages is not None else written_pvps(self.reads)
        if self._hub is not None:  # a run may keep an earlier commit, and is told it later
            self._tables.clear()
        # for errors: the file, or the option
        self.pvps_from = pattern and (pattern[1:] if pattern[0] == "@" else "task.pattern")
        self.accounts: dict[str, Account] = {}
        self._loaded: dict[str, Sequence[Example]] = {}

    @property
    def _chats(self) -> bool:
        """Whether rows are conversations, which no pattern writes."""
        return self.kind == "generation" and not self.pvps

    @property
    def fields(self) -> Sequence[str]:  # type: ignore[override]
        """The fields of an example."""
        return [MESSAGES] if self._chats else self.reads

    @property
    def repositories(self) -> Sequence[Repository]:
        """The data set of the hub, if the rows come from one."""
        return [] if self._hub is None else [self._hub]

    @cached_property
    def labels(self) -> Sequence[str]:  # type: ignore[override]
        """The labels of the training file, sorted."""
        if self._labels is not None:
            return self._words.every(self._labels) if self._words else self._labels
        if not (self.stratified or self._words):
            return []
        if self._each:
            return self._each
        targets = targets_of(self.load("train"))
        if self.kind == "multilabel" or self._words:
            counts = Counter(label for labels in targets for label in labels)
        else:
            counts = Counter(targets)
            train = self._table("train")
            check_labels(str(train.file), self._label, train.columns, counts)
            for doubt in doubts(self._label, counts, by_accuracy=self.metric == "accuracy"):
                _LOG.warning("%s: %s", train.file, doubt)
        listed = names(f"{shown(label)[1:-1]} ({counts[label]})" for label in sorted(counts))
        _LOG.info("labels: %s", listed)
        return self._words.every(sorted(counts)) if self._words else sorted(counts)

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row without reading its label."""
        blank: Any = 0.0 if self.kind == "regression" else []
        blank = self.labels[0] if self.kind == "classification" else blank
        texts = self._texts(row)
        blank = [self.labels[0]] * len(texts[self.fields[0]]) if self._words else blank
        for field in self._lacking(texts):
            row.value(field)  # a row may lack it
            lack = "is empty or has an empty word" if self._words else "is empty"
            raise UserError(f"{row.where}: {shown(field)} {lack}; fill it in or delete the row.")
        return Example(name, texts, blank)

    @cached_property
    def optional(self) -> Collection[str]:  # type: ignore[override]
        """The texts that may be empty: in a group of the pattern, or second, before an answer."""
        if self.kind == "generation" and self.pvps == written_pvps(self.reads):
            return self.reads[1:]
        from ptrun.pattern.pattern import optional_fields  # imports torch

        return optional_fields(self.pvps, self.pvps_from or "task.pattern") if self.pvps else ()

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the user gave a file for this part."""
        return part in self._places

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part, in file order."""
        if part not in self._places:
            raise UserError(
                f"task {self.name} has no {part} file: type task.{part}=FILE, or protocol=honest, "
                "which takes one from train."
            )
        if part not in self._loaded:
            self._loaded[part] = gathered(self._read(part))
            if not self._loaded[part]:
                file, account = self._table(part).file, self.accounts[part]
                raise UserError(f"{file}: no rows are left ({account}).")
        examples = self._loaded[part]
        return list(examples) if isinstance(examples, list) else examples

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return every metric of the kind: 0-100, or correlations from -100 to 100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        if self._words:
            return self._words.score(guesses, golds)
        if self.kind == "generation":
            return text_scores(self.metrics, predictions, golds, self.answers_by)
        if self.kind == "multilabel":
            return label_scores(self.labels, predictions, golds)
        if self.kind == "regression":
            return correlations(guesses, golds)
        return {"accuracy": accuracy(guesses, golds), "macro_f1": macro_f1(guesses, golds)}

    def signatures(self, examples: Sequence[Example]) -> Mapping[str, str]:
        """Return how the metrics of texts are computed, with the versions of packages."""
        if self.kind != "generation":
            return {}
        return signatures(self.metrics, [e.target for e in examples], self.answers_by)

    def recorded(self) -> dict[str, Any]:
        """Return the labels and the patterns."""
        return {**super().recorded(), "pvps": dict(self.pvps)}

    def digest(self) -> str:
        """Return 16 hex over the contents of the files, their parts, and the pattern."""
        hashed = hashlib.sha256()
        for part in filter(self.has, PARTS):
            hashed.update(f"{part} {self._table(part).identity()}\n".encode())
        if self.pvps:
            hashed.update(json.dumps(self.pvps, default=str).encode())
        return hashed.hexdigest()[:16]

    def _columns(
        self, text: Column | list[Column] | None, label: Column | None
    ) -> tuple[list[str], str]:
        """Return the columns of text and of the label, all of them present and distinct."""
        texts = [str(c) for c in (text if isinstance(text, list) else [text]) if c is not None]
        if "train" not in self._places:  # checked when the run was trained
            return texts, "" if label is None else str(label)
        train = self._table("train").file
        listed = f"columns: {names(self._table('train').columns)}"
        if not 1 <= len(texts) <= 2:
            raise UserError(
                f"task.text: expected one or two columns of {train}, got {len(texts)}; {listed}\n"
                "Type task.text=COLUMN, or task.text=[COLUMN,COLUMN] for a pair of texts."
            )
        if label is None:
            advice = "Type task.label=COLUMN, or task.answer=COLUMN if it holds texts to write."
            raise UserError(f"task.label: expected a column of {train}; {listed}\n{advice}")
        if len({*texts, str(label)}) <= len(texts) and self.kind != "generation":
            twice = f"task.text={names(texts)} and task.label={label} name the same column twice"
            raise UserError(f"{twice}; {listed}")
        for part in filter(self.has, PARTS if self._hub is None else ()):  # the hub is asked later
            self._table(part).check([*texts, str(label), *self._each])
        return texts, str(label)

    def _table(self, part: Part) -> Table | HubTable:
        """Return the table of a part; how it is read is found once."""
        if part not in self._tables:
            hub, place = self._hub, self._places[part]
            rows = HubTable(hub, self._subset, place) if hub else table(Path(place), self.form)
            self._tables[part] = rows
        return self._tables[part]

    def _read(self, part: Part) -> Iterator[Example]:
        """Yield the examples of a file, and account for every row."""
        table, read = self._table(part), [*dict.fromkeys([*self.reads, self._label, *self._each])]
        also = {_ID, self._verdict(table), *(BESIDE if self._chats else ())} - {*read}
        more = [column for column in table.columns if column in also]
        account = self.accounts[part] = Account()
        empty, strange = list[tuple[str, str]](), list[tuple[str, str]]()
        columns = {*table.columns}
        for i, row in enumerate(table.rows([*read, *more])):
            account.read += 1
            columns |= row.data.keys()
            if VERDICT in more and row.data.get(VERDICT) in LEFT_OUT:
                account.left_out[f"{VERDICT} is {row.data[VERDICT]}"] += 1
                continue
            name = row.data.get(_ID) if _ID in more else None
            is_named = isinstance(name, str | int) and name != ""
            example_id = str(name) if is_named else f"{part}-{i}"
            if self._chats and row.value(self._label) not in EMPTY:
                talk, behind = answered(*joined(row, self.reads[0], self._label))
                if talk is None:
                    account.left_out["no turn is learned"] += 1
                else:
                    account.noted.update(["have turns behind the last learned one"] * bool(behind))
                    yield Example(example_id, talk.fields, talk.target)
                continue
            texts = {} if self._chats else self._texts(row)
            lacking, labels = self._lacking(texts), self._read_labels(row)
            skipped = [x for x in labels or () if x in self._skip or x.lower() in self._no_label]
            if skipped:
                account.left_out[f"{self._label} is {skipped[0]}"] += 1
            elif labels is None or lacking:
                empty.append((row.where, self._label if labels is None else lacking[0]))
                account.left_out["an empty cell"] += 1
            elif (part != "train" or self._labels) and {*labels} - {*self.labels} and self.labels:
                strange.append((row.where, next(x for x in labels if x not in self.labels)))
            else:
                account.noted.update(f"without {field}" for field in texts if not texts[field])
                yield Example(example_id, texts, self._gold(row, labels))
        if empty and self._empty == "refuse":
            raise self._empties(empty)
        if strange:
            raise self._strange(strange)
        _LOG.info("%s: %s; %s", table.file, table.found, account)
        unread = columns - {*read, *more}
        if unread and self.kind == "generation" and part == "train":
            _LOG.info("%s: not read: %s", table.file, names(sorted(unread)))

    def _recognised_words(self, pattern: str | None) -> Words | None:
        """Return what reads words with tags, if the rows hold them."""
        if self.kind in ("multilabel", "regression", "generation") or len(self.reads) > 1:
            return None
        names, typed = self._labels or [], self.kind
        if "train" in self._places:
            table, words = self._table("train"), Words(self.reads[0], self._label, names)
            self.kind = words.kind(table, self._skip, typed)
            if self.kind != typed:
                self.recognised = {"kind": self.kind}
                _LOG.info("%s: recognised task.kind=%s, words with tags", table.file, self.kind)
        if self.kind == "classification":
            return None
        if pattern is not None:
            raise UserError(f"task.kind={self.kind} reads words; leave task.pattern out.")
        return Words(self.reads[0], self._label, names, self.kind)

    def _gold(self, row: Row, labels: Sequence[str]) -> Any:
        """Return the target of a row."""
        if self._words:
            return self._words.target(row)
        if self.kind == "generation":
            return references(row, self._label)
        if self.kind == "regression":
            return _number(row, self._label, labels[0])
        if self.kind == "multilabel":  # in the order of answers
            return Labels(in_order(labels, self._labels or self._each or sorted(labels)))
        return labels[0]

    def _verdict(self, table: Table | HubTable) -> str:
        """Return the column of Prodigy's verdicts, if all its values are verdicts, else ""."""
        if VERDICT not in table.columns or VERDICT in (*self.fields, self._label):
            return ""
        values = {row.data.get(VERDICT) for row in table.rows([VERDICT])}
        return VERDICT if values <= {"accept", *LEFT_OUT} else ""

    def _read_labels(self, row: Row) -> Sequence[str] | None:
        """Return the labels of a row, or its number or text; None if the cell is empty."""
        if self._words:
            return self._words.labels(row) or None
        if self.kind == "generation":
            value = row.value(self._label)
            return None if value in EMPTY else [str(value)]
        if self.kind == "multilabel":  # none is an answer
            return labels_of(row, self._each or self._label)
        label = label_text(row, self._label)
        return [label] if _is_filled(label) else None

    def _texts(self, row: Row) -> dict[str, Any]:
        """Return the texts of a row, or its conversation; a null is an empty text."""
        if self._chats:
            return asked(row, self.reads[0]).fields
        if self._words:
            return {self._words.tokens: self._words.words(row)}
        raws = ((field, row.data.get(field)) for field in self.fields)
        texts = {field: "" if raw is None else _text(row, field) for field, raw in raws}
        return {field: text if _is_filled(text) else "" for field, text in texts.items()}

    def _lacking(self, texts: Mapping[str, Any]) -> list[str]:
        """Return the fields of a row that are empty and may not be: one text is needed."""
        empty = [field for field, text in texts.items() if not text]
        return empty if len(empty) == len(texts) else [f for f in empty if f not in self.optional]

    def _strange(self, places: Sequence[tuple[str, str]]) -> UserError:
        labels = sorted({label for _, label in places})
        return UserError(
            f"{places[0][0]}: {self._label} is {shown(places[0][1])}, a label that "
            f"{'task.labels' if self._labels else self._table('train').file} does not have; it has "
            f"{names(self.labels)}\nIn {len(places)} rows: correct them, or type "
            f"{skipping(labels[:_SHOWN])} to leave them out{' ...' * (len(labels) > _SHOWN)}"
            f"{', or name all tags: task.labels=[O,...]' if self._words else ''}."
        )

    def _empties(self, places: Sequence[tuple[str, str]]) -> UserError:
        """Return the error about empty cells: the place and the column of each."""
        lines = names(place.rpartition("/")[2] for place, _ in places)
        columns = sorted({column for _, column in places})
        group = ""
        if self.pvps_from and len(self.fields) > 1 and columns[0] in self.fields:
            group = f", put the field into a group of the pattern, [[ {{{columns[0]}}}]]"
        return UserError(
            f"{places[0][0]}: an empty cell ({names(columns)}), in {len(places)} rows: "
            f"{lines}.\nFill them in{group}, or type task.empty=skip to leave these rows out."
        )


def _is_filled(text: str) -> bool:
    return text[:1].isalnum() or bool(bare(text))


def _text(row: Row, column: str) -> str:
    """Return a text; a number is one too, as it would be in a CSV, and pandas' NaN is none."""
    raw = row.value(column)
    if type(raw) is str:
        return raw
    if isinstance(raw, list):
        advice = 'Write one object for each row (pandas: to_json(orient="records", lines=True)).'
        advice += " If it holds words, task.label holds a list with a tag for each."
        if turns_of(raw):
            advice = "Turns are read where all rows have them, and without a pattern."
        raise UserError(f"{row.where}: {shown(column)} is a list, {shown(raw)}. {advice}")
    if type(raw) in (int, float):
        return "" if raw != raw else str(raw)
    return row.text(column)


def _number(row: Row, column: str, text: str) -> float:
    if is_number(text):
        return float(text)
    advice = ""
    if _COMMA.fullmatch(text):
        advice = f" Write it with a point: {text.replace(',', '.')}."
    elif text.lower() in NO_LABEL:
        advice = f" {skipping([text])} leaves such rows out."
    raise UserError(f"{row.where}: {column} is {shown(text)}; expected a number.{advice}")


# Instructions and conversations are recognised by the names of their columns.

_TALKS = ("messages", "conversations", "conversation")
_PAIRS = (
    ("instruction", "output"), ("instruction", "response"), ("prompt", "completion"),
    ("prompt", "response"), ("question", "answer"), ("question", "response"),
)  # fmt: skip
_SECOND = ("input", "context")
_MORE = ("label", "labels", "choices", "options", "history", "system", "system_prompt", "tools")
"""Columns that change what a pair of texts means."""
_PREFERENCES = ("chosen", "rejected")


def columns_of(table: Table | HubTable) -> dict[str, Any]:
    """Return the columns of a table as keys of `task`; refuse those of no shape, or of several."""
    columns = {name.strip().lower(): name for name in table.columns}
    talks = [columns[name] for name in _TALKS if name in columns]
    shapes: dict[str, dict[str, Any]] = {f"task.messages={t}": {"messages": t} for t in talks}
    second = [columns[name] for name in _SECOND if name in columns]
    for first, answer in (pair for pair in _PAIRS if columns.keys() >= {*pair}):
        text = [columns[first], *second]
        word = f"'task.text=[{','.join(text)}]'" if second else f"task.text={text[0]}"
        keys = {"text": text if second else text[0], "answer": columns[answer]}
        shapes[f"{word} task.answer={columns[answer]}"] = keys
    typed = ", or ".join(shapes)
    more = [] if talks else [columns[name] for name in _MORE if name in columns]
    if columns.keys() >= {*_PREFERENCES}:
        wrong = "Pairs of preferences are not learned; name one text, as task.messages=chosen."
    elif len(shapes) > 1:
        wrong = f"They have {len(shapes)} shapes; type one: {typed}."
    elif shapes and more:
        wrong = f"{names(more)} would not be read; if that is meant, type {typed}."
    elif shapes:
        _LOG.info("%s: recognised %s", table.file, typed)
        return shapes[typed]
    else:
        wrong = "Type task.text=COLUMN task.label=COLUMN, or task.answer=COLUMN for texts to write."
        close = [pair for pair in _PAIRS if {*pair} & columns.keys()]
        if shape := next(iter(close), _TALKS[:1] if near(_TALKS[0], columns) else None):
            lacking = next(name for name in shape if name not in columns)
            wrong += f" The nearest shape, {' and '.join(shape)}, lacks {lacking}"
            wrong += near(lacking, columns) or "."
        elif "text" in columns and not {"label", "labels"} & columns.keys():
            wrong += " A text alone asks nothing, so nothing is learned."
    listed = f"task.text and task.label are missing; columns: {names(table.columns)}"
    raise UserError(f"{table.file}: {listed}\n{wrong}")


def are_turns(table: Table | HubTable, columns: Sequence[str]) -> bool:
    """Return whether columns hold turns, as the first row says in which they are filled.

    A single column is a conversation; anything else in it is refused.
    """
    for row in table.rows(columns):
        cells = [row.data.get(name) for name in columns]
        if any(cell in EMPTY for cell in cells):
            continue
        is_turns = [*map(bool, map(turns_of, cells))]
        if any(is_turns) and not all(is_turns):
            name, other = columns[is_turns.index(True)], columns[is_turns.index(False)]
            advice = "Write turns in both, or type a task.pattern, which reads texts."
            raise UserError(f"{row.where}: {name} holds turns, {other} does not. {advice}")
        if all(is_turns) or len(columns) > 1:
            return all(is_turns)
        parts = cells[0] if isinstance(cells[0], list) else cells
        if any(isinstance(part, dict) and part.keys() & {*_PREFERENCES} for part in parts):
            raise row.wrong(columns[0], "turns; pairs of preferences are not learned")
        raise row.wrong(columns[0], f"{TURNS} (texts are task.text=COLUMN task.answer=COLUMN)")
    return False


def joined(row: Row, asked: str, answer: str) -> tuple[Row, str]:
    """Return a row with the turns of two cells in one column, and that column.

    The turns of the answer alone are learned.
    """
    if asked == answer:
        return row, answer
    before, after = (turns_of(row.data.get(name)) for name in (asked, answer))
    if before is None or after is None:
        raise row.wrong(asked if before is None else answer, "turns, as in the first row")
    turns = [*({**turn, "train": False} for turn in before), *after]
    return row.with_fields({f"{asked} and {answer}": turns}), f"{asked} and {answer}"
