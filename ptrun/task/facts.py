"""Fact probing (LAMA): one word completes a fact, relation by relation."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Unpack

from ptrun.errors import UserError, names, shown
from ptrun.metrics import precision_at_1
from ptrun.task.dataset import PARTS, Common, Dataset, Scores, is_texts
from ptrun.task.lines import json_file
from ptrun.task.source import Row, Source
from ptrun.types import Example, Prediction

TEMPLATES = "templates"
"""An optional file beside the splits, one row per relation (`predicate_id`)."""
OBJECTS = "objects"
"""The value of `vocabulary` that allows the objects of the task itself."""
SEARCHED = ("lpaqa", "autoprompt")
"""Templates in that file that were found by search (LPAQA, AutoPrompt)."""


class Facts(Dataset):
    """Subjects and templates; the target is the object, one word; the group is the relation.

    A file `templates.jsonl[.gz]` beside the splits adds the fields `lpaqa` and `autoprompt`.

    Args beyond those of `Common`:
        relations: the relations to use; null means all.
        common_vocabulary: leave out facts whose object is not in the vocabulary that all models
            share, as the files' `obj_in_common_vocab` says.
        vocabulary: the words that may be predicted; facts with another object are left out. Either
            a file, there or beside the splits: one word per line, or P-tuning's `29k-vocab.json`
            or `34k-vocab.json`, to which the papers restrict P@1. Or `objects`, the distinct
            objects of train, dev and test. That list is closed, so its P@1 is higher. Null means
            any token of the backbone, the hardest.
        vocabulary_of: the model whose list of a `.json` file is read, such as `gpt2-xl`.
    """

    kind = "facts"
    answer = "word"
    metric = "p_at_1"
    fields = ("sub_label",)
    columns = ("predicate_id", "sub_label", "template")

    def __init__(
        self,
        *files: str | None,
        relations: list[str] | None = None,
        common_vocabulary: bool = False,
        vocabulary: str | None = None,
        vocabulary_of: str | None = None,
        **common: Unpack[Common],
    ):
        super().__init__(*files, **common)
        self.relations, self._common = relations, common_vocabulary
        self._allowed, self._model = vocabulary, vocabulary_of
        if vocabulary_of is not None and vocabulary in (None, OBJECTS):
            raise UserError(
                f"task.vocabulary_of={vocabulary_of} needs task.vocabulary=FILE.json too."
            )

    @cached_property
    def vocabulary(self) -> Sequence[str] | None:
        """The words that may be predicted, each once; None means any."""
        if self._allowed is None:
            return None
        if self._allowed == OBJECTS:
            parts = [self.load(part) for part in PARTS if self.has(part)]
            return sorted({str(example.target) for part in parts for example in part})
        return word_list(self._word_file(), self._model)

    def digest(self) -> str:
        """Return what identifies the data, including the content of a vocabulary file."""
        if self._allowed in (None, OBJECTS):
            return super().digest()
        words = self._word_file().read_bytes()
        return hashlib.sha256(super().digest().encode() + words).hexdigest()[:16]

    def score(self, predictions: Sequence[Prediction], examples: Sequence[Example]) -> Scores:
        """Return P@1, 0-100: its mean over relations, which selects, and over facts."""
        guesses, golds = [p.value for p in predictions], [e.target for e in examples]
        return precision_at_1(guesses, golds, [str(e.group) for e in examples])

    def read(self, fallback: str, row: Row) -> Sequence[Example]:
        """Return the fact of a row, or nothing if the task leaves it out."""
        is_used = self.relations is None or row.text("predicate_id") in self.relations
        if not is_used or (self._common and row.data.get("obj_in_common_vocab") is False):
            return []
        return super().read(fallback, row)

    def inputs(self, name: str, row: Row) -> Example:
        """Return the checked subject, relation and templates of a row."""
        relation = row.text("predicate_id")
        fields = {"sub_label": row.text("sub_label"), "template": template(row, "template")}
        return Example(name, fields | self._searched.get(relation, {}), "", relation)

    def target(self, row: Row, unlabelled: Example) -> str:
        """Return the object."""
        return row.text("obj_label")

    @cached_property
    def _searched(self) -> dict[str, dict[str, str]]:
        """The searched templates of each relation; empty without a local file."""
        templates: dict[str, dict[str, str]] = {}
        for row in self._source.rows(TEMPLATES) if self._source.exists(TEMPLATES) else ():
            relation = row.text("predicate_id")
            if relation in templates:
                raise UserError(f"{row.where}: relation {relation} has two rows; keep one.")
            templates[relation] = {key: template(row, key) for key in SEARCHED if key in row.data}
        return templates

    def _word_file(self) -> Path:
        """Return the file of words: where the user says, else beside the splits."""
        file = Path(str(self._allowed))
        places = (file, self._source.beside(file.name))
        for place in places:
            if place and place.is_file():
                return place
        raise UserError(
            f"task.vocabulary={file}: no such file; a list of words, {OBJECTS} or null."
        )

    def _places(self) -> set[tuple[Source, str]]:
        templates = {(self._source, TEMPLATES)} if self._source.exists(TEMPLATES) else set()
        return super()._places() | templates


def template(row: Row, key: str) -> str:
    """Return a template with places of a subject and an object."""
    text = row.text(key)
    if "[X]" not in text or "[Y]" not in text:
        raise UserError(f"{row.where}: {key} {shown(text)} must contain [X] and [Y].")
    return text


# Lists of the words that may be predicted: one word per line, or P-tuning's JSON of LAMA.

_START = "Ġ"  # how GPT-2 and RoBERTa write the start of a word


def word_list(file: Path, model: str | None) -> list[str]:
    """Return the words of a file, each once.

    A `.json` file has a list of tokens for each of several models (`29k-vocab.json`). Where tokens
    carry GPT-2's mark of a word's start, only those are words, without the mark.
    """
    if file.suffix == ".json":
        lists = json_file(file)
        if model not in lists:
            problem = "no model is named" if model is None else f"it has no list of {model}"
            raise UserError(
                f"task.vocabulary={file}: {problem}; task.vocabulary_of is one of {names(lists)}."
            )
        tokens = list(lists[model]) if isinstance(lists[model], dict) else lists[model]
        if not is_texts(tokens):
            raise UserError(f"{file}: {model} has no list of tokens.")
        marked = [token.removeprefix(_START) for token in tokens if token.startswith(_START)]
        words: Iterable[str] = marked or tokens
    elif model is not None:
        raise UserError(f"task.vocabulary_of={model}: {file} is one list of words; leave it out.")
    else:
        words = (line.strip() for line in file.read_bytes().decode("utf-8").splitlines())
    if not (listed := list(dict.fromkeys(word for word in words if word))):
        raise UserError(f"task.vocabulary={file}: the file has no word.")
    return listed
