"""Data of the user's own: one label for a text or a pair of texts, from a table file a part."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ptrun.errors import UserError
from ptrun.metrics.labels import accuracy, macro_f1
from ptrun.task.base import PARTS, Part
from ptrun.task.own_pattern import entry, place
from ptrun.task.shown import names, shown
from ptrun.task.source import Row
from ptrun.task.table import check_columns, columns, rows
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)
_MOST_LABELS = 20  # more, and more than half as many as rows: texts or numbers, not labels


class Own:
    """Classification of the user's own rows; the labels are those of the training file, sorted.

    Args:
        data_dir: not used; files are named one by one, from where the user stands.
        variant: refused; a setting with files of its own has none for these.
        train, dev, test: table files (`ptrun.task.table`); null is none.
        text: the column of the text, or two columns.
        label: the column of the label; numbers are read as text.
        pattern: a pattern (`ptrun.prompt.pattern`) over the columns of text, or `@FILE` that holds
            one, perhaps with label words; it is the PVP `own`.
        name: the task's name in tables and folders; null is the training file's.
        labels: all there are, where the training file is not at hand, to ask about further rows;
            null: that file's.
    """

    kind: ClassVar[str] = "classification"
    metric = "accuracy"
    version = 1
    max_tokens: int | None = None
    descriptions: ClassVar[Mapping[str, str]] = {}

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
        labels: list[str] | None = None,
    ):
        if train is None and labels is None:
            raise UserError(
                "task=csv: which file? Type task.train=FILE task.text=COLUMN task.label=COLUMN; "
                "FILE is CSV, TSV, JSON lines or parquet."
            )
        if variant is not None:
            raise UserError(
                f"setting={variant} has files of its own, none for task=csv; use setting=full."
            )
        given = {"train": train, "dev": dev, "test": test}
        self._files = {part: Path(path) for part, path in given.items() if path is not None}
        self.name = name or Path((train or "csv").removesuffix(".gz")).stem
        self._labels = labels
        self.fields, self._label = self._columns(text, label)
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
        told = names(f"{shown(name)[1:-1]} ({counts[name]})" for name in sorted(counts))
        _LOG.info("labels: %s", told)
        return sorted(counts)

    @property
    def reads(self) -> Sequence[str]:
        """The columns of text."""
        return self.fields

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row whose label is not known.

        Raises:
            UserError: a text is not there, is no text, or empty.
        """
        return Example(name, self._texts(row), self.labels[0])

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the user named a file for this part."""
        return part in self._files

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of a part, in file order.

        Raises:
            UserError: no file was named for it, or a row of it is not what it should be.
        """
        if part not in self._files:
            raise UserError(
                f"task {self.name} has no {part} file: type task.{part}=FILE, or protocol=honest, "
                "which takes one from train."
            )
        if part not in self._loaded:
            self._loaded[part] = list(self._read(part))
        return list(self._loaded[part])

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return accuracy, which selects, and macro-F1, 0-100."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return {"accuracy": accuracy(guesses, golds), "macro_f1": macro_f1(guesses, golds)}

    def digest(self) -> str:
        """Return 16 hex over the contents of files, which part each is, and the pattern."""
        hashed = hashlib.sha256()
        for part in PARTS:
            if part in self._files:
                file = self._files[part]
                content = hashlib.sha256(file.read_bytes()).hexdigest()
                hashed.update(f"{part} {''.join(file.suffixes[-2:]).lower()} {content}\n".encode())
        if self.pvps:
            hashed.update(json.dumps(self.pvps, default=str).encode())
        return hashed.hexdigest()[:16]

    def _columns(self, text: str | list[str] | None, label: str | None) -> tuple[list[str], str]:
        """Return the columns of text and of the label, all there and all different."""
        texts = [text] if isinstance(text, str) else text or []
        if "train" not in self._files:  # checked when it was learned
            return texts, label or ""
        train = self._files["train"]
        known = columns(train)
        if not 1 <= len(texts) <= 2:
            raise UserError(
                f"task.text: which column of {train} is the text? columns: {names(known)}\n"
                "Type task.text=COLUMN, or task.text=[COLUMN,COLUMN] for a pair of texts."
            )
        if label is None:
            raise UserError(
                f"task.label: which column of {train} is the label? columns: {names(known)}\n"
                "Type task.label=COLUMN."
            )
        if len({*texts, label}) <= len(texts):
            raise UserError(
                f"task.text={names(texts)} and task.label={label} name a column twice; "
                f"columns: {names(known)}"
            )
        for file in self._files.values():
            check_columns(file, [*texts, label])
        return texts, label

    def _check_labels(self, counts: Mapping[str, int]) -> None:
        train, total = self._files["train"], sum(counts.values())
        advice = (
            "Classification needs a few labels, many rows each; name another column: "
            f"task.label=COLUMN, of {names(columns(train))}"
        )
        if len(counts) < 2:
            raise UserError(
                f"{train}: column {shown(self._label)} has one value alone, "
                f"{shown(next(iter(counts)))}.\n{advice}"
            )
        if len(counts) > _MOST_LABELS and 2 * len(counts) > total:
            raise UserError(
                f"{train}: column {shown(self._label)} has {len(counts)} different values in "
                f"{total} rows, too many to be labels.\n{advice}"
            )

    def _read(self, part: Part) -> Iterator[Example]:
        known = None if part == "train" else set(self.labels)
        for i, row in enumerate(rows(self._files[part], [*self.fields, self._label])):
            label = _filled(row, self._label, _as_text(row, self._label)).strip()
            if known is not None and label not in known:
                raise UserError(
                    f"{row.where}: {self._label} is {shown(label)}, a label that "
                    f"{self._files['train']} does not have; it has {names(self.labels)}"
                )
            yield Example(f"{part}-{i}", self._texts(row), label)

    def _texts(self, row: Row) -> dict[str, str]:
        return {field: _filled(row, field, row.text(field)) for field in self.fields}


def _filled(row: Row, column: str, text: str) -> str:
    if not text.strip():
        raise UserError(f"{row.where}: {shown(column)} is empty; fill it in or delete the row.")
    return text


def _as_text(row: Row, column: str) -> str:
    """Return a label as text: 1 and 1.0 are `1`, true is `true`."""
    found = row.value(column)
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, float) and found.is_integer():
        return str(int(found))
    if not isinstance(found, str | int) and not (isinstance(found, float) and found == found):
        raise UserError(
            f"{row.where}: label {shown(column)} is {shown(found)}; expected text or a number."
        )
    return str(found)
