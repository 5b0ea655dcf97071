"""What imports of data share: checked fields, task files, folders that appear complete."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.config.compose import compose_run
from ptrun.config.paths import leads_out
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
    """Write text files that do not exist yet: all of them or, after an error, none.

    Raises:
        UserError: one exists.
        OSError: one cannot be written.
    """
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
    """Return a whole number of a row.

    Raises:
        UserError: the field is absent or no whole number.
    """
    value = row.value(key)
    if type(value) is not int:
        raise UserError(f"{row.where}: field {key!r} is {shown(value)}; expected a whole number.")
    return value


def inner(row: Row, key: str) -> Row:
    """Return an object inside a row.

    Raises:
        UserError: the field is absent or no object.
    """
    value = row.value(key)
    if not isinstance(value, dict):
        raise UserError(f"{row.where}: field {key!r} is {shown(value)}; expected an object.")
    return Row(row.where, value)


def each(row: Row, key: str) -> list[Row]:
    """Return the objects of a list inside a row.

    Raises:
        UserError: the field is absent or no list of objects.
    """
    values = row.value(key)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise UserError(f"{row.where}: field {key!r} is {shown(values)}; expected objects.")
    return [Row(row.where, value) for value in values]


def label(row: Row, names: Sequence[Any]) -> int:
    """Return the index of the row's `label` among its published names.

    Raises:
        UserError: the row has no label, or another one.
    """
    if "label" not in row.data:
        raise UserError(f"{row.where}: no label; the file is a hidden test or another task's.")
    raw = row.data["label"]
    if raw not in names:
        allowed = ", ".join(map(repr, names))
        raise UserError(f"{row.where}: label is {shown(raw)}; expected one of {allowed}.")
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
    """Return what the file of a task says.

    Raises:
        UserError: there is no such task, it tags nothing, or a name in it leads out of the folder.
    """
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
    """Return the one file or folder of a part.

    Raises:
        UserError: there is none, or there are several.
    """
    files = candidates(source, part)
    if len(files) == 1:
        return files[0]
    entries = files or (sorted(source.iterdir()) if source.is_dir() else [])
    problem = f"several files for {part}" if files else f"no file for {part}"
    raise UserError(
        f"{source}: {problem} among {names(e.name for e in entries) or 'no files'}; type "
        f"--{part} FILE."
    )
