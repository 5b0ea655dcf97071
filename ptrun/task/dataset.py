"""What every kind of task shares: named splits of a source, read row by row."""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from string import Formatter
from typing import Any, ClassVar, Required, TypedDict, Unpack

from ptrun.errors import UserError
from ptrun.task.base import PARTS, Part
from ptrun.task.shown import shown
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction

_OWN = {"train": "train", "dev": "validation", "test": "test"}  # the splits of a variant's files


class Common(TypedDict, total=False):
    """The keys all kinds of task take from YAML.

    `splits` and `paper_splits` say which published split is train, dev and test, null where there
    is none; the second is for `protocol=paper`, where the authors used others. `values` maps raw
    field values to others, as in COPA's `cause` to `because`. `written` makes further text fields
    out of others, as in `asked: "{question} {answer}"`. `skip` lists, by field, raw values that
    mean "no gold label"; such rows are left out, and a warning counts them. `pvps` are patterns
    with their verbalizers, by name (`ptrun.prompt.pvp`). `descriptions` say what a text of a label
    is, by label (`ptrun.readout.entailment_head`).
    """

    name: Required[str]
    version: Required[int]
    source: Required[dict[str, Any]]
    splits: Required[dict[str, str | None]]
    paper_splits: dict[str, str | None] | None
    max_tokens: int | None
    values: dict[str, dict[str, Any]] | None
    written: dict[str, str] | None
    skip: dict[str, list[Any]] | None
    pvps: dict[str, dict[str, Any]] | None
    descriptions: dict[str, str] | None


log = logging.getLogger(__name__)


class Dataset(ABC):
    """The published parts of a data set; a kind of task says what an example of it is.

    Args:
        data_dir: folder of local data, from the run.
        variant: folder of a setting's own files (`fewglue`), which then take the place of the
            task's; from the run.
        common: see `Common`.
    """

    kind: ClassVar[str]
    fields: Sequence[str]
    labels: Sequence[str] = ()
    pvps_from: str | None = None
    metric: str

    def __init__(self, data_dir: str | None, variant: str | None, **common: Unpack[Common]):
        self.name, self.version = common["name"], common["version"]
        self.max_tokens = common.get("max_tokens")
        self.pvps: Mapping[str, Any] = common.get("pvps") or {}
        self.descriptions: Mapping[str, str] = common.get("descriptions") or {}
        self._splits = common["splits"]
        self._paper = common.get("paper_splits")
        self._values = common.get("values") or {}
        self._written, self._skip = common.get("written") or {}, common.get("skip") or {}
        self._source = Source(self.name, common["source"], data_dir)
        self._variant = Source(self.name, common["source"], data_dir, variant) if variant else None

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""
        return self._place(part, paper=paper) is not None

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of a part, in file order; `paper` for the authors' own splits.

        Raises:
            UserError: a file or line cannot be read, or is not what the task expects.
        """
        source, split = self._place(part, paper=paper) or (self._source, part)
        rows = enumerate(self._rows(source, split))
        return [example for i, row in rows for example in self.read(f"{split}-{i}", row)]

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
        told = sorted(source.digest([split]) for source, split in self._places())
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]

    def read(self, fallback: str, row: Row) -> Sequence[Example]:
        """Return the examples of a row, one unless a kind says otherwise."""
        return [self.example(_id(row, fallback), row)]

    def example(self, name: str, row: Row) -> Example:
        """Return the example of a row, checked; `name` is its id."""
        unlabelled = self.inputs(name, row)
        return replace(unlabelled, target=self.target(row, unlabelled))

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row as it came, its answer neither needed nor read.

        Raises:
            UserError: a field that the task reads is not there, or not what it should be.
        """
        return self.inputs(name, self._write(self._map(row)))

    @property
    def reads(self) -> Sequence[str]:
        """The fields that a row must have to be asked about, as files have them."""
        parts = {name: _parts(form) for name, form in self._written.items()}
        made = (part for field in self.columns for part in parts.get(field, [field]))
        return list(dict.fromkeys(made))

    @property
    @abstractmethod
    def columns(self) -> list[str]:
        """The fields that `inputs` reads, further ones that `written` makes among them."""

    @abstractmethod
    def inputs(self, name: str, row: Row) -> Example:
        """Return what is asked, checked; its target has the right form, and is nobody's answer."""

    @abstractmethod
    def target(self, row: Row, unlabelled: Example) -> Any:
        """Return the right answer to what is asked, checked."""

    @abstractmethod
    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return every metric of predictions paired with examples by position."""

    def _places(self) -> set[tuple[Source, str]]:
        """Return every file, as a source and its split, that the examples are made of."""
        found = {self._place(part, paper=paper) for part in PARTS for paper in (False, True)}
        return {place for place in found if place is not None}

    def _place(self, part: Part, *, paper: bool) -> tuple[Source, str] | None:
        """Return where a part is: a source and its split, or None.

        A variant has train, dev and perhaps test of its own. Without a test it is reported on what
        the task itself reports on, its test or, where that is hidden, its dev.
        """
        if self._variant is not None:
            split = _OWN[part]
            if part != "test" or self._variant.exists(split):
                return self._variant, split
        splits = self._paper if paper and self._paper else self._splits
        found = splits.get(part)
        if found is None and self._variant is not None:
            found = splits.get("dev")
        return (self._source, found) if found else None

    def _rows(self, source: Source, split: str) -> Iterator[Row]:
        left_out = 0
        for row in source.rows(split):
            if any(row.data.get(key) in raws for key, raws in self._skip.items()):
                left_out += 1
                continue
            yield self._write(self._map(row))
        if left_out:
            log.warning(
                "task %s: %d rows of %s have no gold label (%s) and are left out.",
                *(self.name, left_out, split, self._skip),
            )

    def _map(self, row: Row) -> Row:
        mapped = {
            key: table.get(row.data[key], row.data[key])
            for key, table in self._values.items()
            if isinstance(row.data.get(key), str)
        }
        return Row(row.where, {**row.data, **mapped}) if mapped else row

    def _write(self, row: Row) -> Row:
        for name, form in self._written.items():
            text = form.format_map({part: row.text(part) for part in _parts(form)})
            row = Row(row.where, {**row.data, name: text})
        return row


def _parts(form: str) -> list[str]:
    """Return the fields that a further field is written of."""
    return [part for _, part, _, _ in Formatter().parse(form) if part]


def _id(row: Row, fallback: str) -> str:
    found = row.data.get("id", fallback)
    if not isinstance(found, str | int):
        raise UserError(f"{row.where}: id is {shown(found)}; expected a text or a number, or none.")
    return str(found)
