"""What every kind of task shares: named splits of a source, read row by row."""

from abc import ABC, abstractmethod
from typing import Any

from ptrun.task.base import Part
from ptrun.task.source import Row, Source
from ptrun.types import Example


class Dataset(ABC):
    """The published parts of a data set; a kind of task says what an example of it is.

    Args:
        data_dir: folder of local data, from the run.
        name: task name, also the folder of local files.
        version: raised whenever a field, a label or a metric changes meaning.
        source: `hub`/`revision`/`subset`/`rename`, or `pocket`.
        splits: which published split is train, dev and test; null where there is none.
        max_tokens: longest input in tokens; null for what the backbone holds.
    """

    def __init__(
        self,
        data_dir: str | None,
        name: str,
        version: int,
        source: dict[str, Any],
        splits: dict[str, str | None],
        max_tokens: int | None,
    ):
        self.name, self.version, self.max_tokens = name, version, max_tokens
        self._splits = splits
        self._source = Source(name, source, data_dir)

    def has(self, part: Part) -> bool:
        """Return whether the data set publishes this part with labels."""
        return self._splits.get(part) is not None

    def load(self, part: Part) -> list[Example]:
        """Return the examples of a part, in file order.

        Raises:
            UserError: a file or line cannot be read, or is not what the task expects.
        """
        split = self._splits[part] or ""
        return [self.example(f"{split}-{i}", r) for i, r in enumerate(self._source.rows(split))]

    def digest(self) -> str:
        """Return what identifies the data: contents of local files, or hub id and revision."""
        return self._source.digest([split for split in self._splits.values() if split])

    @abstractmethod
    def example(self, fallback: str, row: Row) -> Example:
        """Return the example of a row; `fallback` is its id if the row has none."""
