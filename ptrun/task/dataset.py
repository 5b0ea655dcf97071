"""What every kind of task shares: named splits of a source, read row by row."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Required, TypedDict, Unpack

from ptrun.errors import UserError
from ptrun.task.base import Part
from ptrun.task.shown import shown
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction


class Common(TypedDict, total=False):
    """The keys all kinds of task take from YAML.

    `splits` and `paper_splits` say which published split is train, dev and test, null where there
    is none; the second is for `protocol=paper`, where the authors used others. `values` maps raw
    field values to others, as in COPA's `cause` to `because`. `pvps` are patterns with their
    verbalizers, by name (`ptrun.prompt.pvp`).
    """

    name: Required[str]
    version: Required[int]
    source: Required[dict[str, Any]]
    splits: Required[dict[str, str | None]]
    paper_splits: dict[str, str | None] | None
    max_tokens: int | None
    values: dict[str, dict[str, Any]] | None
    pvps: dict[str, dict[str, Any]] | None


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
    metric: str

    def __init__(self, data_dir: str | None, variant: str | None, **common: Unpack[Common]):
        self.name, self.version = common["name"], common["version"]
        self.max_tokens = common.get("max_tokens")
        self.pvps: Mapping[str, Any] = common.get("pvps") or {}
        self._splits = common["splits"]
        self._paper = common.get("paper_splits") or self._splits
        self._values = common.get("values") or {}
        self._source = Source(self.name, common["source"], data_dir, variant)

    def has(self, part: Part, *, paper: bool = False) -> bool:
        """Return whether the data set publishes this part with labels."""
        return self._names(paper=paper).get(part) is not None

    def load(self, part: Part, *, paper: bool = False) -> list[Example]:
        """Return the examples of a part, in file order.

        Raises:
            UserError: a file or line cannot be read, or is not what the task expects.
        """
        split = self._names(paper=paper)[part] or ""
        return [
            e for i, row in enumerate(self._rows(split)) for e in self.read(f"{split}-{i}", row)
        ]

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
        names = [*self._splits.values(), *self._paper.values()]
        return self._source.digest(sorted({split for split in names if split}))

    def read(self, fallback: str, row: Row) -> Sequence[Example]:
        """Return the examples of a row, one unless a kind says otherwise."""
        return [self.example(_id(row, fallback), row)]

    @abstractmethod
    def example(self, name: str, row: Row) -> Example:
        """Return the example of a row, checked; `name` is its id."""

    @abstractmethod
    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return every metric of predictions paired with examples by position."""

    def _names(self, *, paper: bool) -> Mapping[str, str | None]:
        return self._paper if paper else self._splits

    def _rows(self, split: str) -> Iterator[Row]:
        for row in self._source.rows(split):
            mapped = {
                key: table.get(row.data[key], row.data[key])
                for key, table in self._values.items()
                if isinstance(row.data.get(key), str)
            }
            yield Row(row.where, {**row.data, **mapped}) if mapped else row


def _id(row: Row, fallback: str) -> str:
    found = row.data.get("id", fallback)
    if not isinstance(found, str | int):
        raise UserError(f"{row.where}: id is {shown(found)}; expected a text or a number, or none.")
    return str(found)
