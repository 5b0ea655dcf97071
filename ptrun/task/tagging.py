"""Tagging: one IOB2 tag for every word of a pre-split sentence."""

from collections.abc import Sequence
from typing import Any

from ptrun.errors import UserError
from ptrun.task.base import Part
from ptrun.task.metric import entity_scores
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction


class Tagging:
    """Sentences as words, with a tag each.

    Args:
        data_dir: folder of local data, from the run.
        name: task name, also the folder of local files.
        version: raised whenever a field, a tag or a metric changes meaning.
        source: `hub`/`revision`/`subset`, or `pocket`.
        splits: which published split is train, dev and test.
        tokens: the field of the words.
        tags: the field of their tags.
        entities: the entity types; tags are `O`, `B-<type>` and `I-<type>`.
        max_tokens: longest input in tokens; null for what the backbone holds.
    """

    kind = "tagging"
    metric = "f1"

    def __init__(
        self,
        data_dir: str | None,
        *,
        name: str,
        version: int,
        source: dict[str, Any],
        splits: dict[str, str | None],
        tokens: str,
        tags: str,
        entities: list[str],
        max_tokens: int | None = None,
    ):
        self.name, self.version, self.max_tokens = name, version, max_tokens
        self.fields = [tokens]
        self.labels: Sequence[str] = ["O", *(f"{p}-{e}" for e in entities for p in "BI")]
        self._tokens, self._tags = tokens, tags
        self._splits = splits
        self._source = Source(name, source, data_dir)

    def has(self, part: Part) -> bool:
        """Return whether the data set publishes this part with labels."""
        return self._splits.get(part) is not None

    def load(self, part: Part) -> list[Example]:
        """Return the sentences of a part; `fields` and `target` are lists of equal length.

        Raises:
            UserError: a file or line cannot be read, words and tags differ in number, or a tag
                is outside the task's set.
        """
        split = self._splits[part] or ""
        return [self._example(f"{split}-{i}", r) for i, r in enumerate(self._source.rows(split))]

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return entity F1, precision and recall, 0-100, as seqeval's default mode does."""
        return entity_scores([p.value for p in predictions], [e.target for e in examples])

    def digest(self) -> str:
        """Return what identifies the data."""
        return self._source.digest([split for split in self._splits.values() if split])

    def _example(self, fallback: str, row: Row) -> Example:
        words, tags = row.value(self._tokens), row.value(self._tags)
        if not _is_words(words) or not isinstance(tags, list) or len(words) != len(tags):
            raise UserError(
                f"{row.where}: {self._tokens} and {self._tags} must be lists of equal length, "
                "at least one word."
            )
        for tag in tags:
            if tag not in self.labels:
                raise UserError(
                    f"{row.where}: tag {tag!r} is not of task {self.name}; "
                    f"allowed: {', '.join(self.labels)}."
                )
        return Example(str(row.data.get("id", fallback)), {self._tokens: words}, tags)


def _is_words(words: Any) -> bool:
    return isinstance(words, list) and bool(words) and all(isinstance(w, str) for w in words)
