"""Tagging: one IOB2 tag for every word of a sentence; for SRL, for one predicate of a sentence."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Unpack

from ptrun.errors import UserError, shown
from ptrun.metrics import entity_scores
from ptrun.task.dataset import PARTS, Common, Dataset, Scores, is_texts
from ptrun.task.source import Row
from ptrun.types import Example, Prediction


class Tagging(Dataset):
    """Sentences as lists of words; the target is one tag per word.

    Args beyond those of `Common`:
        tokens: the field of the words.
        tags: the field of their tags.
        entities: the types; tags are `O`, `B-<type>` and `I-<type>`. Null means all tags that any
            part has. A tag that train lacks then counts as missed and does not stop the run.
        tag_names: the tags in the order of their numbers, if the files hold numbers.
        predicate: the field with the index of the predicate, for semantic roles. The word at this
            index becomes the field `predicate`, to be read after the sentence.
    """

    kind = "tagging"
    answer = "tags"
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
        self.fields, self.columns = [tokens], [tokens, *([predicate] if predicate else [])]
        self._tokens, self._tags, self._entities = tokens, tags, entities
        self._predicate, self._tag_names = predicate, dict(enumerate(tag_names or []))

    @property
    def has_predicate(self) -> bool:
        """Whether a sentence has a predicate, whose roles are tagged."""
        return self._predicate is not None

    @cached_property
    def labels(self) -> Sequence[str]:  # type: ignore[override]
        """The tags, `O` first."""
        if self._entities is None:
            return ["O", *sorted(self._tags_of_parts(), key=lambda tag: (tag[2:], tag))]
        return ["O", *(f"{p}-{e}" for e in self._entities for p in "BI")]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return entity F1, precision and recall, 0-100, as seqeval's default mode does.

        For semantic roles, the predicate counts, and C- and R- roles are types of their own, as in
        the released code of P-tuning v2. The official scorer is slightly stricter.
        """
        return entity_scores([p.value for p in predictions], [e.target for e in examples])

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked words of a row, and its predicate."""
        words = row.value(self._tokens)
        if not is_texts(words):
            raise row.wrong(self._tokens, "a list of at least one word, each a text")
        fields: dict[str, Any] = {self._tokens: words}
        if self._predicate is not None:
            place = row.value(self._predicate)
            if type(place) is not int or not 0 <= place < len(words):
                raise row.wrong(self._predicate, "a word index")
            fields["predicate"] = words[place]
        return Example(name, fields, ["O"] * len(words))

    def target(self, row: Row, unlabelled: Example) -> list[str]:
        """Return the checked tags."""
        tags = self._read_tags(row)
        if len(unlabelled.target) != len(tags):
            raise UserError(
                f"{row.where}: {self._tokens} and {self._tags} must be lists of equal length."
            )
        for tag in tags:
            if tag not in self.labels:
                advice = "\nFor numbers type task.tag_names=[O,B-PER,...], in their order."
                advice = f"{', '.join(self.labels[:40])}.{advice if type(tag) is int else ''}"
                raise UserError(
                    f"{row.where}: tag {shown(tag)} is not a tag of task {self.name}; allowed: "
                    f"{advice}"
                )
        return tags

    def _tags_of_parts(self) -> set[str]:
        """Return the IOB2 tags of all parts except `O`; `target` refuses any other tag."""
        places = {self._place(part, paper=False) for part in PARTS} - {None}
        rows = (row for place in places if place for row in self._rows(*place))
        tags = {str(tag) for row in rows for tag in self._read_tags(row)}
        return {tag for tag in tags if tag[:2] in ("B-", "I-") and tag[2:]}

    def _read_tags(self, row: Row) -> list[Any]:
        tags = row.value(self._tags)
        if not isinstance(tags, list):
            raise row.wrong(self._tags, "a list of tags")
        return [self._tag_names.get(t, t) if type(t) is int else t for t in tags]
