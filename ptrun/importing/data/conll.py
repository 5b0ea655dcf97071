"""Named entities and semantic roles from column files, as rows of a tagging task.

Roles are read from bracketed columns (CoNLL-2005, CoNLL-2012), or from the lines of P-tuning v2's
files (zenodo 6318701): the predicate's index, the words, `|||`, and a tag for each word.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.errors import UserError
from ptrun.importing.data.columns import roles, sentences, tags
from ptrun.importing.data.tagging_task import Fields, found, task_fields
from ptrun.importing.data.writing import Made, Record
from ptrun.task.lines import text_lines
from ptrun.task.shown import names, shown

_DIGITS = 10  # no sentence has so many words; Python refuses to read thousands of digits


@dataclass(frozen=True)
class Columns:
    """The columns to read, from 1, or from -1 at the end; `roles` are the first and the last."""

    words: int = 1
    tags: int = -1
    roles: tuple[int, int] | None = None


def conll(
    source: Path, task: str, columns: Columns, chosen: Mapping[str, Path | None]
) -> list[Made]:
    """Return the files of a task.

    Args:
        source: the folder of the column files.
        task: the task's option; its YAML file names the fields and the entity types.
        columns: where words, tags and roles are.
        chosen: the file or folder of train, dev or test, by part, if its name does not tell.

    Raises:
        UserError: the task tags nothing, or a part has no file or several.
    """
    fields = task_fields(task)
    made = []
    for part, split in fields.splits.items():
        if split is not None:
            files = _files(chosen.get(part) or found(source, part))
            made.append(Made(fields.folder, f"{split}.jsonl", files, _rows(files, fields, columns)))
    return made


def one_file(columns: Columns) -> Callable[[Path, Fields], Iterator[tuple[str, Record]]]:
    """Return a reader of a file of columns: the text of each sentence, and its row."""

    def texts(file: Path, fields: Fields) -> Iterator[tuple[str, Record]]:
        return ((" ".join(row[fields.tokens]), row) for row in _rows([file], fields, columns))

    return texts


def _files(place: Path) -> list[Path]:
    """Return a file, or the files `*conll` below a folder."""
    files = sorted(place.rglob("*conll")) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise UserError(f"{place}: no such file, nor a folder of files *conll.")
    return files


def _rows(files: Sequence[Path], fields: Fields, columns: Columns) -> Iterator[Record]:
    read = _predicates if fields.predicate else _entities
    rows = (row for file in files for row in read(file, fields, columns))
    return ({"id": str(number), **row} for number, row in enumerate(rows))


def _entities(file: Path, fields: Fields, columns: Columns) -> Iterator[Record]:
    for sentence in sentences(file):
        found = tags(sentence, columns.tags)
        for where, tag in zip(sentence.where, found, strict=True):
            if fields.entities and tag != "O" and tag[2:] not in fields.entities:
                raise UserError(
                    f"{where}: {shown(tag)} is of no type of the task: {names(fields.entities)}. "
                    "Choose another column with --tags, or another --task."
                )
        yield {fields.tokens: sentence.column(columns.words), fields.tags: found}


def _predicates(file: Path, fields: Fields, columns: Columns) -> Iterator[Record]:
    found = _lines(file) if columns.roles is None else _roles(file, columns, *columns.roles)
    for words, place, tagged in found:
        yield {fields.tokens: words, str(fields.predicate): place, fields.tags: tagged}


def _roles(
    file: Path, columns: Columns, first: int, last: int
) -> Iterator[tuple[list[str], int, list[str]]]:
    for sentence in sentences(file):
        for place, tagged in roles(sentence, first, last):
            yield sentence.column(columns.words), place, tagged


def _lines(file: Path) -> Iterator[tuple[list[str], int, list[str]]]:
    """Yield the words, predicate and tags of each line of P-tuning v2's files."""
    for where, text in text_lines(file):
        if not text.strip():
            continue
        left, bar, right = text.partition("|||")
        index, *words = left.split() or [""]
        tagged = right.split()
        if not bar:
            raise UserError(
                f"{where}: no |||. For files of columns name those of the roles, as in "
                "--words 4 --roles 12:-2 for CoNLL-2012."
            )
        place = int(index) if index.isdecimal() and len(index) < _DIGITS else -1
        if not 0 <= place < len(words) == len(tagged):
            raise UserError(
                f"{where}: predicate {shown(index)}, {len(words)} words and {len(tagged)} tags; "
                "expected the index of a word and as many tags as words."
            )
        yield words, place, tagged
