"""A label for every word of a sentence, or IOB2 tags; for SRL, for one predicate of a sentence."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Unpack

from ptrun.errors import UserError, shown
from ptrun.metrics import entity_scores, word_scores
from ptrun.task.dataset import PARTS, Common, Dataset, Scores, is_texts
from ptrun.task.source import Row
from ptrun.types import Example, Prediction

_LABELS = (
    "\nFor labels that mark no spans, such as parts of speech, write _target_: "
    "ptrun.task.tagging.Tags (ptrun new task NAME --kind tags)."
)


class Tags(Dataset):
    """Sentences as lists of words; the target is a label of each word, as its part of speech.

    Args beyond those of `Common`:
        tokens: the field of the words.
        tags: the field of their labels.
        labels: all labels. Null means all that any part has. A label that train lacks then counts
            as missed and does not stop the run.
        tag_names: the labels in the order of their numbers, if the files hold numbers.
    """

    kind = "tags"
    answer = "word_labels"
    metric = "accuracy"

    def __init__(
        self,
        *files: str | None,
        tokens: str,
        tags: str,
        labels: list[str] | None = None,
        tag_names: list[str] | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.fields, self.columns = [tokens], [tokens]
        self._tokens, self._tags, self._labels = tokens, tags, labels
        self._tag_names, self.finds_labels = dict(enumerate(tag_names or [])), labels is None

    @cached_property
    def labels(self) -> Sequence[str]:  # type: ignore[override]
        """The labels, sorted unless the YAML file lists them."""
        return self._labels or sorted(self._tags_of_parts())

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return accuracy and macro F1 over words, 0-100."""
        return word_scores([p.value for p in predictions], [e.target for e in examples])

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked words of a row."""
        words = self._cell(row, self._tokens)
        if not is_texts(words):
            raise row.wrong(self._tokens, "a list of at least one word, each a text")
        return Example(name, {self._tokens: words}, [self.labels[0]] * len(words))

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
                if type(tag) is str:
                    from ptrun.task.tag_schemes import marks_spans  # for an error alone

                    no_span = self.answer == "tags" and not marks_spans([tag])
                    advice = _LABELS if no_span else ""
                raise UserError(
                    f"{row.where}: tag {shown(tag)} is not a tag of task {self.name}; allowed: "
                    f"{', '.join(self.labels[:40])}.{advice}"
                )
        return tags

    def _tags_of_parts(self) -> set[str]:
        """Return the tags of all parts; `target` refuses what is no text, or is empty."""
        places = {self._place(part, paper=False) for part in PARTS} - {None}
        rows = (row for place in places if place for row in self._rows(*place))
        return {tag for row in rows for tag in self._read_tags(row) if tag and type(tag) is str}

    def _cell(self, row: Row, field: str) -> Any:
        """Return the list of a cell, which a CSV has as a text."""
        if isinstance(value := row.value(field), list):
            return value
        from ptrun.task.label import listed  # few rows need it

        return listed(value)

    def _read_tags(self, row: Row) -> list[Any]:
        tags = self._cell(row, self._tags)
        if not isinstance(tags, list):
            raise row.wrong(self._tags, "a list of tags")
        return [self._tag_names.get(t, t) if type(t) is int else t for t in tags]


class Tagging(Tags):
    """Sentences as lists of words; the target is one IOB2 tag per word.

    Args beyond those of `Common`, and `tokens`, `tags` and `tag_names` of `Tags`:
        entities: the types; tags are `O`, `B-<type>` and `I-<type>`. Null means all tags that any
            part has. A tag that train lacks then counts as missed and does not stop the run.
        predicate: the field with the index of the predicate, for semantic roles. The word at this
            index becomes the field `predicate`, to be read after the sentence.
    """

    kind = "tagging"
    answer = "tags"
    metric = "f1"

    def __init__(
        self,
        *files: str | None,
        tokens: str,
        tags: str,
        entities: list[str] | None = None,
        tag_names: list[str] | None = None,
        predicate: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, tokens=tokens, tags=tags, tag_names=tag_names, **common)
        self.columns = [tokens, *([predicate] if predicate else [])]
        self._entities, self._predicate = entities, predicate
        self.finds_labels, self.has_predicate = entities is None, predicate is not None

    @cached_property
    def labels(self) -> Sequence[str]:  # type: ignore[override]
        """The tags, `O` first."""
        if self._entities is None:
            tags = (tag for tag in self._tags_of_parts() if tag[:2] in ("B-", "I-") and tag[2:])
            return ["O", *sorted(tags, key=lambda tag: (tag[2:], tag))]
        return ["O", *(f"{p}-{e}" for e in self._entities for p in "BI")]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return entity F1, precision and recall, 0-100, as seqeval's default mode does.

        For semantic roles, the predicate counts, and C- and R- roles are types of their own, as in
        the released code of P-tuning v2. The official scorer is slightly stricter.
        """
        return entity_scores([p.value for p in predictions], [e.target for e in examples])

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked words of a row, and its predicate."""
        sentence = super().inputs(name, row)
        if self._predicate is None:
            return sentence
        words, place = sentence.fields[self._tokens], row.value(self._predicate)
        if type(place) is not int or not 0 <= place < len(words):
            raise row.wrong(self._predicate, "a word index")
        return replace(sentence, fields={**sentence.fields, "predicate": words[place]})
