"""Fact probing: one word completes a fact, relation by relation (LAMA)."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Unpack

from ptrun.errors import UserError
from ptrun.metrics.ranking import precision_at_1
from ptrun.task.base import PARTS
from ptrun.task.dataset import Common, Dataset
from ptrun.task.shown import shown
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction

TEMPLATES = "templates"
"""An optional file beside the splits: one row a relation, with its `predicate_id`."""
OBJECTS = "objects"
"""As `vocabulary`: the answers are the objects of the task itself."""
SEARCHED = ("lpaqa", "autoprompt")
"""The templates it may hold, found by search (LPAQA, AutoPrompt); fields of the examples then."""


class Facts(Dataset):
    """Subjects and templates; the target is the object, one word; the group is the relation.

    A file `templates.jsonl[.gz]` beside the splits adds the fields `lpaqa` and `autoprompt`.

    Args beyond those of `Common`:
        relations: those that are used; null is all.
        common_vocabulary: leave out facts whose object is not in the vocabulary that all models
            share; the files say so in `obj_in_common_vocab`.
        vocabulary: which words may be answered: a file of one word a line (LAMA's lists of 29k and
            34k words, by which the papers restrict P@1), or `objects`, the distinct objects of
            train, dev and test: a closed list, on which P@1 is higher. Facts whose object is not
            among them are left out. Null: any token of the backbone's, the hardest of the three.
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
        vocabulary: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(data_dir, variant, **common)
        self.relations, self._common = relations, common_vocabulary
        self._allowed = vocabulary

    @cached_property
    def vocabulary(self) -> Sequence[str] | None:
        """The words that may be answered, each once; None is any.

        Raises:
            UserError: there is no such file, or it has no word.
        """
        if self._allowed is None:
            return None
        if self._allowed == OBJECTS:
            parts = [self.load(part) for part in PARTS if self.has(part)]
            return sorted({str(example.target) for part in parts for example in part})
        words = [line.strip() for line in self._list().decode("utf-8").splitlines()]
        if not any(words):
            raise UserError(f"task.vocabulary={self._allowed}: the file has no word.")
        return list(dict.fromkeys(word for word in words if word))

    def digest(self) -> str:
        """Return what identifies the data: with the content of a vocabulary's file."""
        if self._allowed in (None, OBJECTS):
            return super().digest()
        return hashlib.sha256(super().digest().encode() + self._list()).hexdigest()[:16]

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

    @property
    def columns(self) -> list[str]:
        """The subject, and the relation with its template."""
        return ["predicate_id", "sub_label", "template"]

    def inputs(self, name: str, row: Row) -> Example:
        """Return what a row asks, checked."""
        relation = row.text("predicate_id")
        fields = {"sub_label": row.text("sub_label"), "template": _template(row, "template")}
        fields |= self._searched.get(relation, {})
        return Example(name, fields, "", relation)

    def target(self, row: Row, unlabelled: Example) -> str:
        """Return the object."""
        return row.text("obj_label")

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

    def _list(self) -> bytes:
        file = Path(str(self._allowed))
        if not file.is_file():
            raise UserError(
                f"task.vocabulary={file}: no such file; name one with a word a line, "
                f"type task.vocabulary={OBJECTS}, or null for any token."
            )
        return file.read_bytes()

    def _places(self) -> set[tuple[Source, str]]:
        more = {(self._source, TEMPLATES)} if self._source.exists(TEMPLATES) else set()
        return super()._places() | more


def _template(row: Row, key: str) -> str:
    text = row.text(key)
    if "[X]" not in text or "[Y]" not in text:
        raise UserError(f"{row.where}: {key} {shown(text)} has no [X] or no [Y].")
    return text
