"""Writing of imported data: all folders of an import appear complete, or none does."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.converting.staging import check_new, progress, staging
from ptrun.errors import UserError

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Made:
    """A file to write.

    Args:
        folder, name: its place, `<out>/<folder>/<name>`; never taken from the data.
        sources: the files it is made from.
        rows: its rows, read from the sources on iteration.
    """

    folder: str
    name: str
    sources: Sequence[Path]
    rows: Iterable[Record]


def write(out: Path, files: Sequence[Made], texts: Mapping[Path, str]) -> Iterator[str]:
    """Write files as JSON lines and yield one line of text about each, when all are in place.

    `texts` are new text files. They are written just before the folders appear: a command that was
    killed in between is typed again, and finds its own.

    Raises:
        UserError: a folder exists and is not empty, a source is invalid, a file has no rows, or a
            text file exists with other content.
    """
    folders = list(dict.fromkeys(made.folder for made in files))
    for folder in folders:
        check_new(out / folder)
    nbytes = sum(file.stat().st_size for made in files for file in made.sources)
    with progress(nbytes) as advance, ExitStack() as stack:
        places = {f: stack.enter_context(staging(out / f, nbytes)) for f in folders}
        counts = [_written(made, places[made.folder] / made.name, advance) for made in files]
        write_new({file: text for file, text in texts.items() if not _is(file, text)})
    for made, count in zip(files, counts, strict=True):
        yield f"{out / made.folder / made.name}: {count} row{'s' * (count != 1)}"


def _is(file: Path, text: str) -> bool:
    return file.is_file() and file.read_bytes() == text.encode()


def _written(made: Made, file: Path, advance: Callable[[int], None]) -> int:
    """Write one file and return the number of its rows."""
    count = 0
    with file.open("w", encoding="utf-8") as lines:
        for row in made.rows:
            lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    if not count:
        raise UserError(f"{made.sources[0]}: no examples in it.")
    advance(sum(source.stat().st_size for source in made.sources))
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
