"""Tagging: one IOB2 tag for every word of a pre-split sentence; of one predicate for SRL."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.entities import entity_scores
from ptrun.task.base import PARTS
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Tagging(Dataset):
    """Sentences as words, with a tag each.

    Args beyond those of `Common`:
        tokens: the field of the words.
        tags: the field of their tags.
        entities: the types; tags are `O`, `B-<type>` and `I-<type>`. Null: the tags that the parts
            have, all of them, so that what train lacks counts as missed instead of stopping the
            run.
        tag_names: the tags in the order of their numbers, where files hold numbers.
        predicate: the field of the index of a predicate word, for semantic roles; that word is
            then the field `predicate` of an example, to be read after the sentence.
    """

    kind: ClassVar[str] = "tagging"
    metric = "f1"

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        tokens: str,
        tags: str,
        entities: list[str] | None = None,
        tag_names: list[str] | None = None,
        predicate: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.fields = [tokens]
        self._tokens, self._tags, self._entities = tokens, tags, entities
        self._predicate, self._names_of_tags = predicate, dict(enumerate(tag_names or []))

    @cached_property
    def labels(self) -> Sequence[str]:  # type: ignore[override]
        """The tags, `O` first."""
        if self._entities is None:
            return ["O", *sorted(self._found(), key=lambda tag: (tag[2:], tag))]
        return ["O", *(f"{p}-{e}" for e in self._entities for p in "BI")]

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return chunk F1, precision and recall, 0-100, as seqeval's default mode does.

        For semantic roles this counts the predicate itself and C- and R- roles as types of their
        own, as the released code of P-tuning v2 does; the official scorer is a little stricter.
        """
        return entity_scores([p.value for p in predictions], [e.target for e in examples])

    @property
    def columns(self) -> list[str]:
        """The words, and where the predicate is."""
        return [self._tokens, *([] if self._predicate is None else [self._predicate])]

    def inputs(self, name: str, row: Row) -> Example:
        """Return the words of a row, checked, and its predicate."""
        words = row.value(self._tokens)
        if not _is_words(words):
            raise UserError(
                f"{row.where}: {self._tokens} is {shown(words)}; expected a list of at "
                "least one word, each a text."
            )
        fields: dict[str, Any] = {self._tokens: words}
        if self._predicate is not None:
            fields["predicate"] = self._word(row, words)
        return Example(name, fields, ["O"] * len(words))

    def target(self, row: Row, unlabelled: Example) -> list[str]:
        """Return the tags, checked."""
        tags = self._read_tags(row)
        if len(unlabelled.target) != len(tags):
            raise UserError(
                f"{row.where}: {self._tokens} and {self._tags} must be lists of equal length."
            )
        for tag in tags:
            if tag not in self.labels:
                raise UserError(
                    f"{row.where}: tag {shown(tag)} is not of task {self.name}; "
                    f"allowed: {', '.join(self.labels[:40])}."
                )
        return tags

    def _found(self) -> set[str]:
        """Return the tags of all parts but `O`; what is no IOB2 tag is left for `example`."""
        places = {self._place(part, paper=False) for part in PARTS} - {None}
        rows = (row for place in places if place for row in self._rows(*place))
        every = {str(tag) for row in rows for tag in self._read_tags(row)}
        return {tag for tag in every if tag[:2] in ("B-", "I-") and tag[2:]}

    def _read_tags(self, row: Row) -> list[Any]:
        tags = row.value(self._tags)
        if not isinstance(tags, list):
            raise UserError(f"{row.where}: {self._tags} is {tags!r}; expected a list of tags.")
        return [self._names_of_tags.get(t, t) if type(t) is int else t for t in tags]

    def _word(self, row: Row, words: list[str]) -> str:
        place = row.value(self._predicate or "")
        if type(place) is not int or not 0 <= place < len(words):
            raise UserError(f"{row.where}: {self._predicate} is {place!r}; expected a word index.")
        return words[place]


def _is_words(words: Any) -> bool:
    return isinstance(words, list) and bool(words) and all(isinstance(w, str) for w in words)
