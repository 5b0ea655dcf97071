"""The user's own data: one label for a text or a pair of texts, from one table file per part."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ptrun.errors import UserError
from ptrun.hub.repository import Repository
from ptrun.metrics.labels import accuracy, macro_f1
from ptrun.task.base import PARTS, Part, Scores
from ptrun.task.delimited import Quoting
from ptrun.task.own_pattern import entry, place
from ptrun.task.shown import names, shown
from ptrun.task.source import Row
from ptrun.task.table import check_columns, columns, rows
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)
_ID = "id"  # a column that names the rows
_MOST_LABELS = 20  # a column with more distinct values, in over half of its rows, has no labels


class Own:
    """Classification of the user's own rows; the labels are those of the training file, sorted.

    Args:
        data_dir: not used; each file has its own path, relative to the working directory.
        variant: refused; a setting with its own files has none for this task.
        train, dev, test: table files (`ptrun.task.table`); null means none.
        text: the column of the text, or two columns.
        label: the column of the label; numbers are read as text.
        pattern: a pattern (`ptrun.prompt.pattern`) over the text columns, or `@FILE` with a
            pattern and perhaps label words; it becomes the PVP `own`.
        name: the task's name in tables and folders; null means the training file's name.
        quoting: `none` if quotes in a CSV or TSV are plain text; null: they enclose cells.
        labels: all labels, for prediction without the training file; null means to read it.

    The id of an example is that of the column `id`, if the file has one, else part and number.
    """

    kind: ClassVar[str] = "classification"
    answer: ClassVar[str] = "label"
    fills_gap: ClassVar[bool] = False
    stratified: ClassVar[bool] = True
    metric = "accuracy"
    version = 1
    max_tokens: int | None = None
    descriptions: ClassVar[Mapping[str, str]] = {}
    repositories: ClassVar[Sequence[Repository]] = ()

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        train: str | None,
        dev: str | None = None,
        test: str | None = None,
        text: str | list[str] | None = None,
        label: str | None = None,
        pattern: str | None = None,
        name: str | None = None,
        quoting: Quoting = None,
        labels: list[str] | None = None,
    ):
        if train is None and labels is None:
            raise UserError(
                "task=csv: no training file. Type task.train=FILE task.text=COLUMN "
                "task.label=COLUMN; FILE is CSV, TSV, JSON lines or parquet."
            )
        if variant is not None:
            raise UserError(
                f"setting={variant} has its own files, none for task=csv; use setting=full."
            )
        paths = {"train": train, "dev": dev, "test": test}
        self._files = {part: Path(path) for part, path in paths.items() if path is not None}
        self.name = name or Path((train or "csv").removesuffix(".gz")).stem
        self._labels, self.quoting = labels, quoting
        self.fields, self._label = self._columns(text, label)
        self.reads = self.fields
        self.pvps: Mapping[str, Any] = {} if pattern is None else {"own": entry(pattern)}
        self.pvps_from = pattern and place(pattern)
        self._loaded: dict[str, list[Example]] = {}

    @cached_property
    def labels(self) -> Sequence[str]:
        """The labels of the training file, sorted.

        Raises:
            UserError: the column does not hold labels.
        """
        if self._labels is not None:
            return self._labels
        counts = Counter(str(example.target) for example in self.load("train"))
        self._check_labels(counts)
        listed = names(f"{shown(label)[1:-1]} ({counts[label]})" for label in sorted(counts))
        _LOG.info("labels: %s", listed)
        return sorted(counts)

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row without reading its label.

        Raises:
            UserError: a text is missing, empty or not a text.
        """
        return Example(name, self._texts(row), self.labels[0])

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the user gave a file for this part."""
        return part in self._files

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of a part, in file order.

        Raises:
            UserError: the user gave no file for the part, or a row does not fit the task.
        """
        if part not in self._files:
            raise UserError(
                f"task {self.name} has no {part} file: type task.{part}=FILE, or protocol=honest, "
                "which takes one from train."
            )
        if part not in self._loaded:
            self._loaded[part] = list(self._read(part))
        return list(self._loaded[part])

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return accuracy, which selects, and macro-F1, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return {"accuracy": accuracy(guesses, golds), "macro_f1": macro_f1(guesses, golds)}

    def digest(self) -> str:
        """Return 16 hex over the contents of the files, their parts, and the pattern."""
        hashed = hashlib.sha256()
        for part in filter(self.has, PARTS):
            file = self._files[part]
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            hashed.update(f"{part} {''.join(file.suffixes[-2:]).lower()} {content}\n".encode())
        if self.pvps:
            hashed.update(json.dumps(self.pvps, default=str).encode())
        return hashed.hexdigest()[:16]

    def _columns(self, text: str | list[str] | None, label: str | None) -> tuple[list[str], str]:
        """Return the columns of text and of the label, all of them present and distinct."""
        texts = [text] if isinstance(text, str) else text or []
        if "train" not in self._files:  # checked when the run was trained
            return texts, label or ""
        train = self._files["train"]
        listed = f"columns: {names(columns(train, self.quoting))}"
        if not 1 <= len(texts) <= 2:
            raise UserError(
                f"task.text: expected one or two columns of {train}, got {len(texts)}; {listed}\n"
                "Type task.text=COLUMN, or task.text=[COLUMN,COLUMN] for a pair of texts."
            )
        if label is None:
            raise UserError(
                f"task.label: expected a column of {train}; {listed}\nType task.label=COLUMN."
            )
        if len({*texts, label}) <= len(texts):
            raise UserError(
                f"task.text={names(texts)} and task.label={label} name the same column twice; "
                f"{listed}"
            )
        for file in self._files.values():
            check_columns(file, [*texts, label], self.quoting)
        return texts, label

    def _check_labels(self, counts: Mapping[str, int]) -> None:
        train, total = self._files["train"], sum(counts.values())
        problem = None
        if len(counts) < 2:
            problem = f"only one value, {shown(next(iter(counts)))}."
        elif len(counts) > _MOST_LABELS and 2 * len(counts) > total:
            problem = f"{len(counts)} different values in {total} rows, too many to be labels."
        if problem:
            raise UserError(
                f"{train}: column {shown(self._label)} has {problem}\n"
                "Classification needs a few labels with many rows each. Name another column: "
                f"task.label=COLUMN, of {names(columns(train, self.quoting))}"
            )

    def _read(self, part: Part) -> Iterator[Example]:
        allowed = None if part == "train" else set(self.labels)
        file, wanted = self._files[part], [*self.fields, self._label]
        ids = [_ID] if _ID not in wanted and _ID in columns(file, self.quoting) else []
        for i, row in enumerate(rows(file, [*wanted, *ids], self.quoting)):
            label = _filled(row, self._label, _as_text(row, self._label)).strip()
            if allowed is not None and label not in allowed:
                raise UserError(
                    f"{row.where}: {self._label} is {shown(label)}, a label that "
                    f"{self._files['train']} does not have; it has {names(self.labels)}"
                )
            name = row.data.get(_ID) if ids else None
            named = isinstance(name, str | int) and name != ""
            yield Example(str(name) if named else f"{part}-{i}", self._texts(row), label)

    def _texts(self, row: Row) -> dict[str, str]:
        return {field: _filled(row, field, row.text(field)) for field in self.fields}


def _filled(row: Row, column: str, text: str) -> str:
    if not text.strip():
        raise UserError(f"{row.where}: {shown(column)} is empty; fill it in or delete the row.")
    return text


def _as_text(row: Row, column: str) -> str:
    """Return a label as text: 1 and 1.0 are `1`, true is `true`."""
    raw = row.value(column)
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, float) and raw.is_integer():
        return str(int(raw))
    if not isinstance(raw, str | int) and not (isinstance(raw, float) and raw == raw):
        raise UserError(
            f"{row.where}: label {shown(column)} is {shown(raw)}; expected text or a number."
        )
    return str(raw)
