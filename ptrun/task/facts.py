"""Fact probing: one word completes a fact, relation by relation (LAMA)."""

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.task.dataset import Common, Dataset
from ptrun.task.metrics.ranking import precision_at_1
from ptrun.task.shown import shown
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction

TEMPLATES = "templates"
"""An optional file beside the splits: one row a relation, with its `predicate_id`."""
SEARCHED = ("lpaqa", "autoprompt")
"""The templates it may hold, found by search (LPAQA, AutoPrompt); fields of the examples then."""


class Facts(Dataset):
    """Subjects and templates; the target is the object, one word; the group is the relation.

    A file `templates.jsonl[.gz]` beside the splits adds the fields `lpaqa` and `autoprompt`.

    Args beyond those of `Common`:
        relations: those that are used; null is all.
        common_vocabulary: leave out facts whose object is not in the vocabulary that all models
            share; the files say so in `obj_in_common_vocab`.
    """

    kind: ClassVar[str] = "facts"
    metric = "p_at_1"
    fields = ("sub_label",)

    def __init__(
        self,
        data_dir: str | None,
        variant: str | None = None,
        *,
        relations: list[str] | None = None,
        common_vocabulary: bool = False,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.relations, self._common = relations, common_vocabulary

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[Example]
    ) -> dict[str, float]:
        """Return P@1, 0-100: its mean over relations, which selects, and over facts."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return precision_at_1(guesses, golds, [str(e.group) for e in examples])

    def read(self, fallback: str, row: Row) -> Sequence[Example]:
        """Return the fact of a row, or none if it is not wanted."""
        wanted = self.relations is None or row.text("predicate_id") in self.relations
        if not wanted or (self._common and row.data.get("obj_in_common_vocab") is False):
            return []
        return super().read(fallback, row)

    def example(self, name: str, row: Row) -> Example:
        """Return the example of a row, checked."""
        relation = row.text("predicate_id")
        fields = {"sub_label": row.text("sub_label"), "template": _template(row, "template")}
        fields |= self._searched.get(relation, {})
        return Example(name, fields, row.text("obj_label"), relation)

    @cached_property
    def _searched(self) -> dict[str, dict[str, str]]:
        """The searched templates of each relation, as far as a local file has them."""
        found: dict[str, dict[str, str]] = {}
        for row in self._source.rows(TEMPLATES) if self._source.exists(TEMPLATES) else ():
            relation = row.text("predicate_id")
            if relation in found:
                raise UserError(f"{row.where}: a second row of {relation}; keep one a relation.")
            found[relation] = {key: _template(row, key) for key in SEARCHED if key in row.data}
        return found

    def _places(self) -> set[tuple[Source, str]]:
        more = {(self._source, TEMPLATES)} if self._source.exists(TEMPLATES) else set()
        return super()._places() | more


def _template(row: Row, key: str) -> str:
    text = row.text(key)
    if "[X]" not in text or "[Y]" not in text:
        raise UserError(f"{row.where}: {key} {shown(text)} has no [X] or no [Y].")
    return text
