"""Tagging: one IOB2 tag for every word of a pre-split sentence."""

from collections.abc import Sequence
from typing import Any

from ptrun.errors import UserError
from ptrun.task.dataset import Dataset
from ptrun.task.metric import entity_scores
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Tagging(Dataset):
    """Sentences as words, with a tag each.

    Args beyond those of `Dataset`:
        tokens: the field of the words.
        tags: the field of their tags.
        entities: the entity types; tags are `O`, `B-<type>` and `I-<type>`.
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
        super().__init__(data_dir, name, version, source, splits, max_tokens)
        self.fields = [tokens]
        self.labels: Sequence[str] = ["O", *(f"{p}-{e}" for e in entities for p in "BI")]
        self._tokens, self._tags = tokens, tags

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return entity F1, precision and recall, 0-100, as seqeval's default mode does."""
        return entity_scores([p.value for p in predictions], [e.target for e in examples])

    def example(self, fallback: str, row: Row) -> Example:
        """Return the example of a row, checked."""
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
