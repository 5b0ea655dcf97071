"""What every kind of task shares: named splits of a source, read row by row."""

import hashlib
import inspect
import json
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any, Literal, Protocol, Required, TypedDict, Unpack

from ptrun.errors import UserError, unknown
from ptrun.hub.repository import Repository
from ptrun.task.columns import gathered
from ptrun.task.source import Account, Row, Source
from ptrun.task.stored import code_of, stored
from ptrun.types import Example, Prediction

_LOG = logging.getLogger(__name__)


# The interface of a task: its examples, and the score of predictions. No tokenizer, no model.

Part = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = ("train", "dev", "test")
Scores = dict[str, float]
SEVERAL = "several"
"""The answer of several tasks in one: `ptrun.task.multi`."""
MESSAGES = "messages"
"""The field of a conversation."""
GAP = "@placeholder"
"""Where an entity is left out of a query."""


_NONE: Mapping[str, Any] = {}


class Task(Protocol):
    """Data and its scoring; a head or verbalizer tells `labels` apart, in this order."""

    kind: str
    answer: str
    """What a prediction is: label, labels, number, option, entity, tags, word_labels, span, spans,
    word, text or several."""
    fills_gap: bool = False
    """Whether words that fill a gap of the text decide the label (WSC)."""
    stratified: bool = False
    """Whether parts of train are drawn class by class."""
    name: str
    version: int
    fields: Sequence[str] = ()
    """The text fields of an example, in reading order."""
    optional: Collection[str] = ()
    """The text fields that a row may lack, or whose text may be empty."""
    labels: Sequence[str] = ()
    finds_labels: bool = False
    """Whether the labels are those that its files have; a finished run recalls them."""
    options: str | Sequence[str] = ()
    """The field of a list of options, or the fields of one option each."""
    metric: str
    """The metric that selects, one of those `score` returns."""
    pvps: Mapping[str, Any] = _NONE
    """Pattern-verbalizer pairs by name, as the task's YAML file has them."""
    pvps_from: str | None = None
    """Where the user wrote `pvps`, for errors. None: they belong to a data set, and may use fields
    that only some of its files have."""
    descriptions: Mapping[str, str] = _NONE
    """A description of each label, as the task's YAML file has it; empty if there is none."""
    max_tokens: int | None = None
    """Longest input in tokens; None means the backbone's limit."""
    recognised: Mapping[str, Any] = _NONE
    """The keys of the task that were read from the shape of its files, as if they were typed."""
    source_language: str | None = None
    target_language: str | None = None
    """Those of a text and of its answer, for encoder-decoders whose tokenizer names languages."""
    accounts: Mapping[str, Account] = _NONE
    """What became of the rows of each part that was loaded; a data set may keep none."""

    @property
    def repositories(self) -> Sequence[Repository]:
        """The hub repositories that the examples come from."""

    @property
    def reads(self) -> Sequence[str]:
        """The fields of a file that `unlabelled` needs."""

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a row without a label; its target is a placeholder."""

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part, in file order; `paper` selects the authors' splits."""

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return every metric, 0-100, of predictions paired with examples by position."""

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""

    def recorded(self) -> dict[str, Any]:
        """Return what it read from its files and predictions need, as plain data."""
        return {"labels": list(self.labels)}


_CODE = [Path(__file__).parent, Path(__file__).parents[1] / "pocket"]
_UNREAD = (
    *("accounts", "pvps", "descriptions", "max_tokens", "source_language", "target_language"),
    *("_source", "_sources", "_variant"),
)
_VARIANT_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


class Common(TypedDict, total=False):
    """The keys that all kinds of task take from YAML.

    `splits` names the published split for train, dev and test; null if there is none.
    `paper_splits` does the same for `protocol=paper`, where the authors used other splits.
    `sources` has, by part, the source of a part that is not in `source`.
    `values` maps raw values of a field to others: COPA's `cause` to `because`.
    `written` composes further text fields: `both: "{question} {answer}"`.
    `skip` lists, by field, raw values that mean "no gold label". Such rows are left out and counted
    in a warning. `pvps` are pattern-verbalizer pairs by name (`ptrun.pattern.pattern`).
    `descriptions` describe each label in words (`ptrun.readout.heads`).
    `source_language` and `target_language`: see `Task`.
    """

    name: Required[str]
    version: Required[int]
    source: Required[dict[str, Any]]
    splits: Required[dict[str, str | None]]
    paper_splits: dict[str, str | None] | None
    sources: dict[Part, dict[str, Any]] | None
    max_tokens: int | None
    values: dict[str, dict[str, Any]] | None
    written: dict[str, str] | None
    skip: dict[str, list[Any]] | None
    pvps: dict[str, dict[str, Any]] | None
    descriptions: dict[str, str] | None
    source_language: str | None
    target_language: str | None


class Dataset(Task):
    """The published parts of a data set; each subclass is a kind of task and builds its examples.

    Args:
        data_dir: folder of local data, from the run.
        variant: folder with a setting's own files (`fewglue`), from the run. They replace the
            task's files.
        common: see `Common`.
    """

    answer = "label"
    columns: Sequence[str]
    """The fields that `inputs` reads, including those that `written` composes."""
    blank: Any = ""
    """The placeholder target of an example without a label; it has the form of a target."""

    def __init__(self, data_dir: str | None, variant: str | None = None, **common: Unpack[Common]):
        self.name, self.version = common["name"], common["version"]
        self.max_tokens = common.get("max_tokens")
        self.source_language = common.get("source_language")
        self.target_language = common.get("target_language")
        self.pvps, self.descriptions = common.get("pvps") or {}, common.get("descriptions") or {}
        self._splits = common["splits"]
        self._paper = common.get("paper_splits")
        self._values = common.get("values") or {}
        self._written, self._skip = common.get("written") or {}, common.get("skip") or {}
        self.accounts: dict[str, Account] = {}
        self._source = Source(self.name, common["source"], data_dir)
        self._variant = Source(self.name, common["source"], data_dir, variant) if variant else None
        self._sources = {
            part: Source(self.name, origin, data_dir)
            for part, origin in (common.get("sources") or {}).items()
        }
        names = [*self._splits.values(), *(self._paper or {}).values()]
        splits = {*filter(None, names), *(_VARIANT_SPLITS.values() if variant else ())}
        for source in (self._source, *self._sources.values()):
            for name in source.origin.get("rows", {}).keys() - splits:
                raise UserError(unknown(f"task.source.rows.{name}", name, splits))

    @property
    def repositories(self) -> Sequence[Repository]:
        """The hub repositories that the examples come from."""
        hubs = (source.repository for source in (self._source, *self._sources.values()))
        return [hub for hub in hubs if hub is not None]

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""
        return self._place(part, paper=paper) is not None

    def load(self, part: Part, *, paper: bool = False) -> Sequence[Example]:
        """Return the examples of a part, in file order; `paper` selects the authors' splits."""
        source, split = self._place(part, paper=paper) or (self._source, part)

        def examples() -> Iterator[Example]:
            for number, row in enumerate(self._rows(source, split)):
                yield from self.read(f"{split}-{number}", row)

        if source.store is None:
            return gathered(examples())
        file = Path(source.store, self._file(source, split))
        rows = stored(file, examples, lambda row: Example(**row))
        self.accounts.pop(split, None)  # kept examples are read without their rows
        return rows

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
        digests = sorted(source.digest([split]) for source, split in self._places())
        return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]

    def read(self, fallback: str, row: Row) -> Sequence[Example]:
        """Return the examples of a row, usually one; `fallback` is the id of a row without one."""
        name = row.data.get("id", fallback)
        if not isinstance(name, str | int):
            raise row.wrong("id", "a text or a number, or none")
        return [self.example(str(name), row)]

    def example(self, name: str, row: Row) -> Example:
        """Return the checked example of a row; `name` is its id."""
        unlabelled = self.inputs(name, row)
        return replace(unlabelled, target=self.target(row, unlabelled))

    def unlabelled(self, name: str, row: Row) -> Example:
        """Return the example of a raw row without reading its label."""
        return self.inputs(name, self._composed(row))

    @property
    def reads(self) -> Sequence[str]:
        """The fields of a file that `unlabelled` needs."""
        parts = {name: _parts(form) for name, form in self._written.items()}
        fields = (part for field in self.columns for part in parts.get(field, [field]))
        return list(dict.fromkeys(fields))

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked fields of a row as an example with a placeholder target."""
        return Example(name, {column: row.text(column) for column in self.columns}, self.blank)

    @abstractmethod
    def target(self, row: Row, unlabelled: Example) -> Any:
        """Return the checked target of an example."""

    def _file(self, source: Source, split: str) -> str:
        """Return the name of the file of a split: a hash of all that its examples depend on."""
        settings = {key: value for key, value in vars(self).items() if key not in _UNREAD}
        code = code_of(*_CODE, Path(inspect.getfile(type(self))))
        facts = [source.digest([split]), split, repr(settings), code]
        return f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.arrow"

    def _places(self) -> set[tuple[Source, str]]:
        """Return the source and split of every part, under both protocols."""
        places = {self._place(part, paper=paper) for part in PARTS for paper in (False, True)}
        return {place for place in places if place is not None}

    def _place(self, part: Part, *, paper: bool) -> tuple[Source, str] | None:
        """Return the source and split of a part; a variant without test has the task's, or dev."""
        if self._variant is not None:
            split = _VARIANT_SPLITS[part]
            if part != "test" or self._variant.exists(split):
                return self._variant, split
        splits = self._paper if paper and self._paper else self._splits
        published = splits.get(part)
        if published is None and self._variant is not None:
            published = splits.get("dev")
        return (self._sources.get(part, self._source), published) if published else None

    def _rows(self, source: Source, split: str) -> Iterator[Row]:
        name = f"{source.folder}/{split}" if source in self._sources.values() else split
        account = self.accounts[name] = Account()
        for row in source.rows(split):
            account.read += 1
            if any(row.data.get(key) in raws for key, raws in self._skip.items()):
                account.left_out["no gold label"] += 1
                continue
            yield self._composed(row)
        if left_out := account.left_out.total():
            _LOG.warning(
                "task %s: %d rows of %s have no gold label (%s) and are left out.",
                *(self.name, left_out, split, self._skip),
            )

    def _composed(self, row: Row) -> Row:
        """Return a row with the values and texts that the YAML file says."""
        for key, table in self._values.items():
            if isinstance(raw := row.data.get(key), str):
                row = row.with_fields({key: table.get(raw, raw)})
        for name, form in self._written.items():
            text = form.format_map({part: row.text(part) for part in _parts(form)})
            row = row.with_fields({name: text})
        return row


def is_texts(value: Any) -> bool:
    """Return whether a value is a list of one text or more."""
    return isinstance(value, list) and bool(value) and all(isinstance(t, str) for t in value)


def _parts(form: str) -> list[str]:
    return [part for _, part, _, _ in Formatter().parse(form) if part]
