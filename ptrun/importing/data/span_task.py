"""Texts with tags as the files of a tagging task, known or new."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.importing.data.span_files import Marked
from ptrun.importing.data.spans import tagged
from ptrun.importing.data.tagging_task import Fields, candidates, found, task_fields
from ptrun.importing.data.writing import Made, Record
from ptrun.task.shown import names, shown

Text = tuple[str, Record]
"""A text, by which files are divided, and its row."""
Read = Callable[[Path, Fields], Iterator[Text]]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NEW = {"train": "train", "dev": "validation", "test": "test"}
_SHARE = 10  # one of so many texts goes to dev, and one to test
_YAML = """\
# Names in texts, imported from marked spans.
_target_: ptrun.task.tagging.Tagging
name: {name}
version: 1                     # raise it when the types change
source: {{folder: {name}}}       # DIR/{name}/*.jsonl, with data_dir=DIR
splits: {splits}
tokens: tokens
tags: ner_tags
entities: {entities}
"""


@dataclass(frozen=True)
class Marks:
    """The files of a task and, if it is new, its YAML file and what to write there."""

    files: Sequence[Made]
    file: Path | None = None
    content: str = ""


def marks(source: Path, task: str, read: Read, chosen: Mapping[str, Path | None]) -> Marks:
    """Return what to write for a task.

    Args:
        source: a file, which is divided into train, dev and test by a hash of each text, or a
            folder with one file for each.
        task: an option of `task`, or the name of a new one.
        read: reads a file.
        chosen: the file of train, dev or test, by part, if its name does not tell.

    Raises:
        UserError: a file cannot be read, a span cannot be written as tags, or a part has no file.
    """
    new = task not in options("task")
    fields = _new(task) if new else task_fields(task)
    parts = {
        part: (place, [row for _, row in own])
        for part, (place, own) in _parts(source, fields, read, chosen, new=new).items()
    }
    made = [
        Made(fields.folder, f"{fields.splits[part]}.jsonl", [place], own)
        for part, (place, own) in parts.items()
    ]
    if not new:
        return Marks(made)
    every = [row for _, own in parts.values() for row in own]
    return Marks(made, _file(task), _yaml(task, list(parts), every))


def _new(task: str) -> Fields:
    """Return the fields of a new task.

    Raises:
        UserError: its name is no name of a file and of a task.
    """
    if not _NAME.fullmatch(task):
        raise UserError(f"--task {task}: use letters, digits and _, such as --task my_names.")
    return Fields(task, _NEW, "tokens", "ner_tags")


def _file(task: str) -> Path:
    return Path("ptrun_conf") / "task" / f"{task}.yaml"


def _yaml(task: str, parts: Sequence[str], rows: Sequence[Record]) -> str:
    types = sorted({tag[2:] for row in rows for tag in row["ner_tags"] if tag != "O"})
    if not types:
        raise UserError(f"--task {task}: no text has a span, so there is no type to find.")
    splits = json.dumps({part: split if part in parts else None for part, split in _NEW.items()})
    return _YAML.format(name=task, splits=splits, entities=json.dumps(types, ensure_ascii=False))


def _parts(
    source: Path, fields: Fields, read: Read, chosen: Mapping[str, Path | None], *, new: bool
) -> dict[str, tuple[Path, list[Text]]]:
    """Return the file and the texts of each part; a new task may lack dev and test."""
    wanted = [part for part, split in fields.splits.items() if split is not None]
    if source.is_file() and not any(chosen.values()):
        divided = _divided(source, list(read(source, fields)), wanted)
        return {part: (source, texts) for part, texts in divided.items()}
    files = {}
    for part in wanted:
        if not new or part == "train" or chosen.get(part) or candidates(source, part):
            files[part] = chosen.get(part) or found(source, part)
    for file in files.values():
        if not file.is_file():
            raise UserError(f"{file}: no such file.")
    return {part: (file, list(read(file, fields))) for part, file in files.items()}


def _divided(source: Path, texts: Sequence[Text], wanted: Sequence[str]) -> dict[str, list[Text]]:
    """Divide texts by their hash, so that equal texts stay together and order does not matter."""
    keys = {text: hashlib.sha256(text.encode()).hexdigest() for text, _ in texts}
    order = sorted(keys, key=lambda text: keys[text])
    if len(order) < len(wanted):
        raise UserError(
            f"{source}: {len(order)} different texts; expected at least {len(wanted)}, for "
            f"{', '.join(wanted)}."
        )
    size = max(1, len(order) // _SHARE)
    others = [part for part in wanted if part != "train"]
    part_of = {text: others[i // size] for i, text in enumerate(order[: size * len(others)])}
    return {part: [t for t in texts if part_of.get(t[0], "train") == part] for part in wanted}


def of_spans(read: Callable[[Path], Iterator[Marked]]) -> Read:
    """Return a reader of texts with marked spans as rows of words and tags."""

    def texts(file: Path, fields: Fields) -> Iterator[Text]:
        return ((one.text, _row(one, fields)) for one in read(file))

    return texts


def _row(marked: Marked, fields: Fields) -> Record:
    for span in marked.spans:
        if fields.entities and span.label not in fields.entities:
            raise UserError(
                f"{marked.where}: {shown(span.label)} is no type of the task: "
                f"{names(fields.entities)}."
            )
    tokens, tags = tagged(marked.where, marked.text, marked.spans)
    return {fields.tokens: tokens, fields.tags: tags}
