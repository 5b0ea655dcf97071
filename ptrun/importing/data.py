"""What imports of data share: checked fields, task files, folders that appear complete."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any

from ptrun.config.compose import compose_run
from ptrun.config.paths import leads_out, options
from ptrun.errors import UserError, names, shown
from ptrun.hub.staging import check_new, progress, staging
from ptrun.task.lines import json_records
from ptrun.task.source import Row

# Writing of imported data: all folders of an import appear complete, or none does.

Record = Mapping[str, Any]


@dataclass(frozen=True)
class MadeFile:
    """A file to write.

    Args:
        folder, name: its place, `<out>/<folder>/<name>`; never taken from the data.
        sources: the files it is made from.
        rows: its rows, read from the sources on iteration; a text is written as it is.
    """

    folder: str
    name: str
    sources: Sequence[Path]
    rows: Iterable[Record | str]


def write(out: Path, files: Sequence[MadeFile], texts: Mapping[Path, str]) -> Iterator[str]:
    """Write files as JSON lines and yield one line of text about each, when all are in place.

    `texts` are new text files. They are written just before the folders appear: a command that was
    killed in between is typed again, and finds its own.
    """
    folders = list(dict.fromkeys(output.folder for output in files))
    for folder in folders:
        check_new(out / folder)
    nbytes = sum(file.stat().st_size for output in files for file in output.sources)
    with progress(nbytes) as advance, ExitStack() as stack:
        places = {f: stack.enter_context(staging(out / f, nbytes)) for f in folders}
        counts = [_written(file, places[file.folder] / file.name, advance) for file in files]
        write_new(
            {
                place: text
                for place, text in texts.items()
                if not (place.is_file() and place.read_bytes() == text.encode())
            }
        )
    for file, count in zip(files, counts, strict=True):
        yield f"{out / file.folder / file.name}: {count} row{'s' * (count != 1)}"


def _written(output: MadeFile, file: Path, advance: Callable[[int], None]) -> int:
    """Write one file and return the number of its rows."""
    count = 0
    with file.open("w", encoding="utf-8") as lines:
        for row in output.rows:
            text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) + "\n"
            lines.write(text)
            count += 1
    if not count:
        raise UserError(f"{output.sources[0]}: no examples in it.")
    advance(sum(source.stat().st_size for source in output.sources))
    return count


def write_new(files: Mapping[Path, str]) -> None:
    """Write text files that do not exist yet: all of them or, after an error, none."""
    if there := next((file for file in files if file.exists()), None):
        raise UserError(f"{there}: exists. Choose another name, or move the file away.")
    written: list[Path] = []
    try:
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as opened:
                written.append(file)
                opened.write(text)
    except OSError:
        for other in written:
            other.unlink(missing_ok=True)
        raise


# Checked parts of the rows that authors publish; every error has the file and the line.


def rows(file: Path) -> Iterator[Row]:
    """Yield the rows of a file of JSON: a list of objects, or one after another."""
    return (Row(where, data) for where, data in json_records(file))


def whole_number(row: Row, key: str) -> int:
    """Return a whole number of a row."""
    return row.typed(key, int, "a whole number")


def inner(row: Row, key: str) -> Row:
    """Return an object inside a row."""
    return Row(row.where, row.typed(key, dict, "an object"))


def each(row: Row, key: str) -> list[Row]:
    """Return the objects of a list inside a row."""
    values = row.typed(key, list, "objects")
    if not all(isinstance(value, dict) for value in values):
        raise row.wrong(key, "objects")
    return [Row(row.where, value) for value in values]


def label(row: Row, names: Sequence[Any]) -> int:
    """Return the index of the row's `label` among its published names."""
    raw = row.value("label")
    if raw not in names:
        raise row.wrong("label", f"one of {', '.join(map(repr, names))}")
    return list(names).index(raw)


# What the YAML file of a tagging task says about its files, and the files a folder has for it.

_SPLITS = {
    "train": {"train"},
    "dev": {"dev", "devel", "development", "valid", "validation", "testa"},
    "test": {"test", "testb"},
}
"""The words in the names of the files of each part."""


@dataclass(frozen=True)
class TaggingFields:
    """The folder, splits and fields of a tagging task; `entities` None allows any type."""

    folder: str
    splits: Mapping[str, str | None]
    tokens: str
    tags: str
    predicate: str | None = None
    entities: Sequence[str] | None = None


def task_fields(task: str) -> TaggingFields:
    """Return what the file of a task says."""
    node = compose_run([f"task={task}"]).task
    if not {"tokens", "tags", "splits"} <= node.keys():
        raise UserError(f"--task {task}: no task of words and tags; conll03 is one.")
    folder = str((node.get("source") or {}).get("folder", node["name"]))
    splits: dict[str, str | None] = node["splits"]
    for name in (folder, *filter(None, splits.values())):
        if leads_out(name):
            raise UserError(f"--task {task}: {shown(name)} in its file leads out of --out.")
    fields = (node["tokens"], node["tags"], node.get("predicate"), node.get("entities"))
    return TaggingFields(folder, splits, *fields)


def candidates(source: Path, part: str) -> list[Path]:
    """Return the files or folders whose name has a word of the part: `eng.testa`, `dev.txt`."""
    entries = sorted(source.iterdir()) if source.is_dir() else []
    return [e for e in entries if _SPLITS[part] & set(re.split(r"[\W_]+", e.name.lower()))]


def found(source: Path, part: str) -> Path:
    """Return the one file or folder of a part."""
    files = candidates(source, part)
    if len(files) == 1:
        return files[0]
    entries = files or (sorted(source.iterdir()) if source.is_dir() else [])
    problem = f"several files for {part}" if files else f"no file for {part}"
    raise UserError(
        f"{source}: {problem} among {names(e.name for e in entries) or 'no files'}; type "
        f"--{part} FILE."
    )


# Texts with tags as the files of a tagging task, known or new.

Read = Callable[[Path, TaggingFields], Iterator[Record]]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TYPO = 0.9  # a name that is so similar to that of a task, from 0 to 1, is one
_NEW = {"train": "train", "dev": "validation", "test": "test"}
_SHARE = 10  # one of so many texts goes to dev, and one to test
_YAML = """\
# Words with tags, from files that `ptrun import` read.
_target_: ptrun.task.tagging.Tagging
name: {name}
version: 1                     # raise it when the types change
source: {{folder: {name}}}       # DIR/{name}/*.jsonl, with data_dir=DIR
splits: {splits}
tokens: tokens
tags: ner_tags
entities: {entities}
"""


def tagging_files(
    source: Path, read: Read, *, task: str, **chosen: Path | None
) -> tuple[list[MadeFile], dict[Path, str]]:
    """Return the files of a task, and the text of its options if it is new; rows are numbered.

    Args:
        source: a file, which is divided into train, dev and test by a hash of its words, or a
            folder with one file, or folder of files *conll, for each.
        read: reads a file.
        task: an option of `task`, or the name of a new one, which may lack dev and test.
        chosen: the file or folder of train, dev or test, by part, if its name does not tell.
    """
    new = task not in options("task")
    fields = _new(task) if new else task_fields(task)

    def rows(files: Sequence[Path]) -> Iterator[Record]:
        every = chain.from_iterable(read(file, fields) for file in files)
        return ({"id": str(number), **row} for number, row in enumerate(every))

    parts: dict[str, tuple[Sequence[Path], Iterable[Record]]] = {}
    names = [part for part, split in fields.splits.items() if split is not None]
    if source.is_file() and not any(chosen.values()):
        divided = _divided(source, list(rows([source])), fields.tokens, names)
        parts = {part: ([source], records) for part, records in divided.items()}
        names = []
    for part in names:
        if not new or part == "train" or chosen.get(part) or candidates(source, part):
            place = chosen.get(part) or found(source, part)
            sources = sorted(place.rglob("*conll")) if place.is_dir() else [place]
            if not sources or not all(file.is_file() for file in sources):
                raise UserError(f"{place}: no such file, nor a folder of files *conll.")
            parts[part] = sources, list(rows(sources)) if new else rows(sources)
    files = [
        MadeFile(fields.folder, f"{fields.splits[part]}.jsonl", made_of, records)
        for part, (made_of, records) in parts.items()
    ]
    if not new:
        return files, {}
    every = [row for _, records in parts.values() for row in records]
    return files, {Path(f"ptrun_conf/task/{task}.yaml"): _yaml(task, [*parts], every)}


def _new(task: str) -> TaggingFields:
    """Return the fields of a new task."""
    if not _NAME.fullmatch(task):
        raise UserError(f"--task {task}: use letters, digits and _, such as --task my_names.")
    if close := get_close_matches(task, options("task"), 1, _TYPO):
        raise UserError(
            f"task={task}: unknown; did you mean {close[0]!r}? A new task needs another name."
        )
    return TaggingFields(task, _NEW, "tokens", "ner_tags")


def _yaml(task: str, parts: Sequence[str], rows: Sequence[Record]) -> str:
    types = sorted({tag[2:] for row in rows for tag in row["ner_tags"] if tag != "O"})
    if not types:
        raise UserError(f"--task {task}: no text has a span, so there is no type to find.")
    for name in types:
        if name.startswith("B-") and f"I-{name[2:]}" in types:
            raise UserError(
                f"--task {task}: types {name} and I-{name[2:]}; name the type of a span, "
                f"{name[2:]}, without B- and I-."
            )
    splits = json.dumps({part: split if part in parts else None for part, split in _NEW.items()})
    return _YAML.format(name=task, splits=splits, entities=json.dumps(types, ensure_ascii=False))


def _divided(
    source: Path, rows: Sequence[Record], tokens: str, parts: Sequence[str]
) -> dict[str, list[Record]]:
    """Divide rows by a hash of their words: equal ones stay together, and order does not matter."""
    keys = [hashlib.sha256(" ".join(row[tokens]).encode()).hexdigest() for row in rows]
    order = sorted(set(keys))
    if len(order) < len(parts):
        raise UserError(
            f"{source}: {len(order)} different texts; expected at least {len(parts)}, for "
            f"{', '.join(parts)}."
        )
    size = max(1, len(order) // _SHARE)
    others = [part for part in parts if part != "train"]
    part_of = {key: others[i // size] for i, key in enumerate(order[: size * len(others)])}
    pairs = list(zip(keys, rows, strict=True))
    return {p: [row for key, row in pairs if part_of.get(key, "train") == p] for p in parts}
