"""The user's own tables: how a file is read is found from the file, and each finding can be set.

| what      | found by                                                      | set by      |
|-----------|---------------------------------------------------------------|-------------|
| files     | names that differ only in a number, in a folder or by a *     | the name    |
| packing   | first bytes: gzip, bzip2, xz, zstandard, zip of one file      |             |
| form      | first bytes: parquet, Arrow, Excel, {" of JSON; else the name | the name    |
| encoding  | byte order mark, else UTF-8                                   | `encoding`  |
| separator | tab in `.tsv`; a first line `sep=;`; else the most frequent   | `separator` |
|           | of , ; tab and the bar in the first line                      |             |
| quotes    | double quotes enclose cells; spaces may stand before them     | `quoting`   |
| header    | the first row that is not blank                               | `columns`   |

A library does each step that one does well: pyarrow reads parquet and Arrow, openpyxl Excel, csv
the cells, charset-normalizer guesses encodings for an error's advice. No sniffer chooses quotes or
a header: those of csv, clevercsv and DuckDB guess, and drop or join rows where they are wrong.
"""

import csv
import hashlib
import logging
import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatch
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from ptrun.errors import UserError, names, near, shown
from ptrun.task import binary
from ptrun.task.lines import (
    LONGEST,
    encoding_of,
    grown,
    json_rows,
    most_bytes,
    name_inside,
    packing,
    start_of,
    text_lines,
)
from ptrun.task.source import Row

_LOG = logging.getLogger(__name__)
csv.field_size_limit(LONGEST)  # Python's own limit is shorter than a long document
Quoting = Literal["none", "cells", "backslash"] | None
"""`none`: quotes are plain text; `cells`: they enclose cells, of several lines too; `backslash`:
so, and \\" is a quote within; None: they enclose cells, and rows that look as if two lone quotes
had joined them are refused."""
Kind = Literal["parquet", "arrow", "excel", "json", "cells"]
_SEPARATORS = ",;\t|"
_ALLOWED = ".csv, .tsv, .json, .jsonl, .parquet, .arrow or .xlsx"
_NAMED: dict[str, Kind] = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_NAMED |= {".xlsx": "excel", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_NAMED |= {".csv": "cells", ".tsv": "cells", ".txt": "cells", ".tab": "cells"}
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_Record = TypeVar("_Record")
_BLOCK = 2**20  # bytes that are read together
_TOP = 100  # objects of JSON that name the columns; a row may lack some
_QUOTES = 5000  # bytes in which spaces before quotes are looked for
_OTHER = {
    b"<!doctype html": "a page of HTML",
    b"<html": "a page of HTML",
    b"version https://git-lfs": "a pointer of Git LFS; type git lfs pull",
    b"%pdf": "a PDF",
    b"sqlite format 3": "a database of SQLite",
    b"__label__": "lines of fastText; write two columns, text and label",
}
"""What a file is that is no table, by its first bytes in small letters."""
_TYPO = 0.8  # how similar, from 0 to 1, a name is to the column that it means
_SHARD = re.compile(r"(.*)-\d{5}(-of-(?!00001)\d{5}\..*)")
_QUOTED = re.compile(r'(?:^|(?<=[,;\t|\n]))"(?:[^"]|"")*(?:"(?=[,;\t|\r\n])|$)')
"""A cell in quotes, or the last one of a text that is cut."""
_SPACED = re.compile(r'[,;\t|] +"')
_RETURN = "\ufdd0"  # no character; stands for a lone CR in a cell without quotes, which csv refuses


@dataclass(frozen=True)
class Given:
    """What the user says of a table; None is found from the file.

    Args:
        separator: between the cells of a CSV: one character, or `tab`.
        quoting: see `Quoting`.
        columns: the names of the columns of a CSV without a header.
        encoding: of a CSV or of JSON, as Python names it.
    """

    separator: str | None = None
    quoting: Quoting = None
    columns: Sequence[str] | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        """Refuse a separator of several characters, and an unknown encoding.

        Raises:
            UserError: names the option.
        """
        if self.separator not in (None, "tab") and len(str(self.separator)) != 1:
            raise UserError(f"separator={shown(self.separator)}: type one character, or tab.")
        try:
            name = self.encoding or "utf-8"
            bytes(64).decode(name).encode(name)  # some codecs make no text: base64, idna
        except (LookupError, ValueError) as error:
            raise UserError(
                f"encoding={shown(self.encoding)}: unknown; for example utf-8, gb18030, cp1252."
            ) from error


FOUND = Given()
"""Nothing is set."""


@dataclass(frozen=True)
class Table:
    """A table file and how it is read.

    Args:
        file: the file, or a folder of `save_to_disk`.
        kind: its form.
        separator: between the cells of a CSV.
        spaced: whether spaces stand before the quotes of a CSV.
        says: whether the first line of a CSV is `sep=;`.
        given: what the user says of it.
    """

    file: Path
    kind: Kind
    separator: str = ","
    spaced: bool = False
    says: bool = False
    given: Given = FOUND

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns.

        Raises:
            UserError: the first line names no columns.
        """
        return _columns(self)

    def rows(self, wanted: Sequence[str]) -> Iterator[Row]:
        """Yield the rows, in order; `where` is the first line of a row. Blank lines are none.

        Raises:
            UserError: a wanted column is missing, a row does not fit the header, or none is there.
        """
        self.check(wanted)
        every = _rows(self, wanted)
        first = next(every, None)
        if first is None:
            raise UserError(f"{self.file}: no rows below the header; a table needs at least one.")
        return chain([first], every)

    def check(self, wanted: Sequence[str]) -> None:
        """Refuse columns that the table does not have.

        Raises:
            UserError: names the column, the most similar one, and all columns.
        """
        for name in wanted:
            if name not in self.columns:
                raise _no_column(self, name)

    def identity(self) -> str:
        """Return what identifies the rows: the form, and the SHA-256 of all files in hex."""
        hashed = hashlib.sha256()
        for file in binary.streams(self.file) if self.file.is_dir() else [self.file]:
            with file.open("rb") as opened:
                while block := opened.read(_BLOCK):
                    hashed.update(block)
        return f"{''.join(self.file.suffixes[-2:]).lower()} {hashed.hexdigest()}"

    @property
    def found(self) -> str:
        """How it is read, in a few words."""
        packed = f", {kind}" if self.file.is_file() and (kind := packing(self.file)) else ""
        if self.kind == "excel":
            return f"excel{binary.first_of(self.file)}"
        if self.kind != "cells":
            return f"{self.kind}{packed}"
        separator = {"\t": "tab", ",": "comma"}.get(self.separator, self.separator)
        encoding = self.given.encoding or encoding_of(start_of(self.file))
        header = "no header" if self.given.columns else "header"
        quotes = ", quotes are text" if self.given.quoting == "none" else ""
        return f"cells separated by {separator}, {header}, {encoding}{quotes}{packed}"


class JoinedTables:
    """Several files as one table: `part-00000.csv`, `part-00001.csv`; see `Table`.

    Args:
        file: the folder, or the name with a *.
        parts: the files, in order.
    """

    def __init__(self, file: Path, parts: Sequence[Table]):
        self.file, self._parts, self.kind = file, parts, parts[0].kind

    @property
    def columns(self) -> list[str]:
        """The names of the columns of the first file."""
        return self._parts[0].columns

    def rows(self, wanted: Sequence[str]) -> Iterator[Row]:
        """Yield the rows of all files.

        Raises:
            UserError: as one file does.
        """
        self.check(wanted)
        return chain.from_iterable(part.rows(wanted) for part in self._parts)

    def check(self, wanted: Sequence[str]) -> None:
        """Refuse columns that a file does not have.

        Raises:
            UserError: as one file does.
        """
        for part in self._parts:
            part.check(wanted)

    def identity(self) -> str:
        """Return what identifies the rows: that of each file."""
        return " ".join(part.identity() for part in self._parts)

    @property
    def found(self) -> str:
        """How it is read, in a few words."""
        return f"{len(self._parts)} files of {self._parts[0].found}"


def table(file: Path, given: Given = FOUND) -> Table | JoinedTables:
    """Return how a file is read, or the files of a folder whose names differ only in a number.

    Raises:
        UserError: there is no such file, or it is no table.
    """
    if parts := _parts(file):
        return JoinedTables(file, [_one(part, given) for part in parts])
    if shard := _SHARD.fullmatch(file.name):
        every = file.with_name(f"{shard[1]}-*{shard[2]}")
        _LOG.warning("%s: one of several files; '%s' names them all", file, every)
    return _one(file, given)


def _parts(file: Path) -> list[Path]:
    """Return the files that a name with a * stands for, or a folder of numbered files."""
    if "*" in file.name and not os.path.exists(file):
        beside = file.parent.iterdir() if file.parent.is_dir() else ()
        return sorted(one for one in beside if fnmatch(one.name, file.name) and one.is_file())
    if not os.path.isdir(file) or (file / binary.STATE).is_file():
        return []
    inside = sorted(f for f in file.iterdir() if f.is_file() and f.name[0] not in "._")
    alike = {re.sub(r"\d+", "#", one.name) for one in inside}
    return inside if len(alike) == 1 and "#" in alike.pop() else []


def _one(file: Path, given: Given) -> Table:
    if (file / binary.STATE).is_file():
        return Table(file, "arrow", given=given)
    check_file(file)
    kind = _kind(file)
    if kind != "cells":
        return Table(file, kind, given=given)
    top = next((text for _, text in text_lines(file, given.encoding) if text.strip()), "")
    said = re.fullmatch(r"sep=(.)\s*", top.strip("\ufeff"))
    usual = "\t" if name_inside(file).endswith(".tsv") else _separator(top)
    typed = "\t" if given.separator == "tab" else given.separator
    start = start_of(file)
    text = start[:_QUOTES].decode(given.encoding or encoding_of(start), errors="ignore")
    spaced = _SPACED.search(_QUOTED.sub("", text)) is not None
    return Table(file, kind, typed or (said[1] if said else usual), spaced, said is not None, given)


def _no_column(own: Table, name: str) -> UserError:
    return UserError(
        f"{own.file}: no column {shown(name)}{near(name, own.columns)}\n"
        f"Its first line names the columns: {names(own.columns)}{_otherwise(own, name)}"
    )


def _otherwise(own: Table, name: str) -> str:
    """Return how else a file can be read so that it has a column."""
    if own.kind == "excel":
        return f"\nIt is read{rest}" if (rest := binary.first_of(own.file)) else ""
    if own.kind != "cells" or own.given.columns:
        return ""
    for other in _SEPARATORS:
        tried = Table(own.file, "cells", other, own.spaced, own.says, own.given)
        if other != own.separator and name in tried.columns:
            typed = "tab" if other == "\t" else f"'{other}'"
            return (
                f"\nSeparated by {typed} it has this column: task.separator={typed} (ptrun "
                f"predict: --separator {typed})."
            )
    typo = get_close_matches(name.lower(), [one.lower() for one in own.columns], 1, _TYPO)
    if len(own.columns) == 1 or typo:
        return ""
    return (
        f"\nIf it has no header, name the columns, {len(own.columns)} in all: task.columns=[...] "
        "(ptrun predict: --columns)."
    )


def check_file(file: Path) -> None:
    """Refuse a folder or a missing file.

    Raises:
        UserError: names the most similar file in its folder.
    """
    if os.path.isdir(file):
        saved = sorted(f.parent.name for f in file.glob(f"*/{binary.STATE}"))  # a DatasetDict
        inside = names(saved or sorted(f.name for f in file.iterdir() if f.is_file()))
        part = "of its parts" if saved else "file"
        raise UserError(f"{file}: a folder; name one {part}, as {file}/{inside or 'train.csv'}")
    if not os.path.isfile(file):  # unlike pathlib, it does not raise on a name that is too long
        beside = [f.name for f in file.parent.iterdir()] if os.path.isdir(file.parent) else []
        raise UserError(f"{file}: no such file below {Path.cwd()}{near(file.name, beside)}")


def _kind(file: Path) -> Kind:
    """Return the form of a file's content.

    Raises:
        UserError: it is empty, or no table.
    """
    with file.open("rb") as opened:
        magic = opened.read(8)
    if not magic:
        raise _empty(file)
    if magic.startswith(b"\xd0\xcf\x11\xe0") or name_inside(file).endswith((".xls", ".ods")):
        raise UserError(f"{file}: an old Excel file or another sheet; save it as .xlsx or CSV.")
    if packing(file) == "zip" and _holds_sheets(file):
        return "excel"
    start = start_of(file)
    named = _NAMED.get(Path(name_inside(file)).suffix)
    found = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if found is None and start[:4] == b"\xff\xff\xff\xff":  # a stream of Arrow
        found = "arrow"
    if packed := packing(file):
        is_sheet = start.startswith(b"PK\x03\x04")
        if found is not None or is_sheet:
            raise UserError(f"{file}: {found or 'a sheet or zip'} inside {packed}; unpack it.")
    if found is None and named in ("parquet", "arrow", "excel"):
        raise UserError(f"{file}: not {named}, though its name says so.")
    if found is not None:
        return found
    top = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    for other, what in _OTHER.items():
        if top.lower().startswith(other):
            raise UserError(f"{file}: {what}, no table.")
    bracket = top[:1] in (b"{", b"[")
    if re.match(rb'(\[\s*)?\{\s*"[^"\n]*"\s*:', top):
        return "json"
    if named is None and packing(file) == "zip":  # it is the file inside that has the name
        named = "json" if bracket else "cells"
    if named is None and not bracket:
        several = re.search(r"\.(tar|tgz|7z|rar)(\.|$)", file.name.lower())
        advice = "unpack it and name a table" if several else "save the table as one"
        raise UserError(f"{file}: unknown kind of file; {advice} of {_ALLOWED}.")
    return named or "json"


def _holds_sheets(file: Path) -> bool:
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            found = "xl/workbook.xml" in archive.namelist()
            if found and sum(one.file_size for one in archive.infolist()) > most_bytes(file):
                raise grown(file)
            return found
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{file}: a damaged Excel or zip file ({error}).") from error


def _columns(own: Table) -> list[str]:
    if own.kind in ("parquet", "arrow"):
        return binary.columns(own.file)
    if own.kind == "json":
        top = list(islice(json_rows(own.file, own.given.encoding), _TOP))
        if not top:
            raise UserError(f"{own.file}: no rows; a table needs at least one.")
        return list(dict.fromkeys(name for _, row in top for name in row))
    if own.kind == "excel":
        return _header(*_first(own.file, binary.sheet(own.file)))
    if own.given.columns:
        return list(own.given.columns)
    return _header(*_first(own.file, _records(own)))


def _header(where: str, cells: Sequence[str]) -> list[str]:
    """Return the column names from the cells of the first row.

    Raises:
        UserError: two columns have the same name.
    """
    named = [str(cell).strip() for cell in cells]  # Excel has numbers too
    for name, count in Counter(named).items():
        if name and count > 1:
            raise UserError(f"{where}: column {shown(name)} appears twice; rename one.")
    return named


def _rows(own: Table, wanted: Sequence[str]) -> Iterator[Row]:
    if own.kind in ("parquet", "arrow"):
        return binary.rows(own.file, wanted)
    if own.kind == "json":
        return (Row(w, data) for w, data in json_rows(own.file, own.given.encoding))
    if own.kind == "excel":
        return _under_header(own, binary.sheet(own.file))
    return _under_header(own, _records(own))


def _under_header(own: Table, records: Iterator[tuple[str, Any]]) -> Iterator[Row]:
    """Yield the rows below the header.

    Raises:
        UserError: a row does not fit the header.
    """
    named = list(own.given.columns or []) or _header(*next(records))
    top, kept = named[0], [name for name in named if name]
    for where, cells in records:
        if own.kind == "excel":  # a row ends at its last cell, or has notes beside the table
            cells = [*cells, *[""] * len(named)][: len(named)]
        if len(cells) != len(named):
            raise UserError(
                f"{where}: {len(cells)} cells, the header has {len(named)}: {names(named)}\n"
                f"{_repair(own, cells, named)}"
            )
        if str(cells[0]).strip() == top and [str(cell).strip() for cell in cells] == named:
            raise UserError(
                f"{where}: the names of the columns again. "
                + (
                    "The file has a header; leave out task.columns (ptrun predict: --columns)."
                    if own.given.columns
                    else "Delete this line; it is no row."
                )
            )
        pairs = zip(named, cells, strict=True)
        yield Row(where, dict(pairs) if len(kept) == len(named) else {n: c for n, c in pairs if n})


def _repair(own: Table, cells: Sequence[str], named: Sequence[str]) -> str:
    """Return what to do about a row that has more or fewer cells than the header."""
    if own.given.columns:
        one = " For a text a line type task.separator=tab (--separator tab)." * (len(named) == 1)
        return f"task.columns (ptrun predict: --columns) names {len(named)} columns; name all.{one}"
    if own.given.quoting == "none":
        return "A line break cuts this row in two, or a cell has the separator; join or replace it."
    if any('\\"' in cell or cell.endswith("\\") for cell in cells):
        return _BACKSLASH
    if len(cells) == len(named) + 1 and not cells[-1]:
        return "The row ends in a separator; end the header in one too, or remove it."
    if len(cells) == len(named) - 1 and not named[-1]:
        return "The header ends in a separator; remove it."
    if len(cells) == len(named) + 1 and cells[0].isdecimal():
        return "If R wrote the numbers of rows, write the file again with row.names=FALSE."
    return 'Put a text with the separator or a line break in double quotes: "a, b".'


_BACKSLASH = (
    'A quote within quotes is written \\" here: type task.quoting=backslash (ptrun predict: '
    "--quoting backslash)."
)


def _records(own: Table) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the cells of each row; blank lines are skipped.

    In a file of one column a blank line between rows is an empty cell.

    Raises:
        UserError: a line is not text, or a quote is not closed, or joins rows.
    """
    seen: deque[str] = deque()
    lines = _remembered(_texts(own), seen)
    escape = own.given.quoting == "backslash"
    reader = csv.reader(
        lines,
        delimiter=own.separator,
        quoting=csv.QUOTE_NONE if own.given.quoting == "none" else csv.QUOTE_MINIMAL,
        escapechar="\\" if escape else None,
        doublequote=not escape,
        strict=True,
        skipinitialspace=own.spaced,
    )
    width = 0
    blank: list[str] = []
    while True:
        where = f"{own.file}:{reader.line_num + 1 + own.says}"
        seen.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            advice = _BACKSLASH if any('\\"' in line for line in seen) else _CLOSE
            raise UserError(
                f"{where}: the row that starts here cannot be read ({error}).\n{advice}"
            ) from error
        whole = seen[0] if len(seen) == 1 else "".join(seen)
        if not whole.strip(" \r\n\x1a"):  # Ctrl-Z ends files of DOS
            blank.append(where)
            continue
        if own.given.quoting is None and len(seen) > 1 and width:
            _check_joined(own, where, [*seen], width)
        if blank:
            if width == 1:
                yield from ((place, [""]) for place in blank)
            blank.clear()
        width = width or len(cells)
        if "\r" in whole:
            cells = [cell.replace(_RETURN, "\r") for cell in cells]
        yield where, cells


_CLOSE = (
    'Close every quote, and write "" for a quote within quotes. If quotes are plain text, type '
    "task.quoting=none (ptrun predict: --quoting none)."
)


def _check_joined(own: Table, where: str, lines: Sequence[str], width: int) -> None:
    """Refuse a row over several lines of which each would be a row: two lone quotes join them.

    A row with "" was written by a program that closes its quotes; tabs are rare in texts.

    Raises:
        UserError: names the line and both readings.
    """
    written = '""' in "".join(lines) and own.separator != "\t"
    rows = [line for line in lines if line.strip(" \r\n")]
    if all(line.count(own.separator) == width - 1 for line in rows) and not written:
        raise UserError(
            f"{where}: a quote opens here and closes {len(lines) - 1} lines below, and each of "
            f"these lines has {width} cells.\nIf quotes are plain text, type task.quoting=none "
            "(ptrun predict: --quoting none); if one cell has these lines, task.quoting=cells "
            "(--quoting cells)."
        )


def _texts(own: Table) -> Iterator[str]:
    for where, text in islice(text_lines(own.file, own.given.encoding), int(own.says), None):
        if "\0" in text:
            raise UserError(f"{where}: a NUL byte; save the file as UTF-8 text.")
        yield text


def _remembered(lines: Iterator[str], seen: deque[str]) -> Iterator[str]:
    """Yield lines, and keep those of the row that is being read."""
    for line in lines:
        seen.append(line)
        if "\r" in line:
            inside = line.rstrip("\r\n")
            line = inside.replace("\r", _RETURN) + line[len(inside) :]
        yield line


def _separator(header: str) -> str:
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _first(file: Path, records: Iterator[_Record]) -> _Record:
    for record in records:
        return record
    raise _empty(file)


def _empty(file: Path) -> UserError:
    return UserError(f"{file}: empty; expected a table whose first line names the columns.")
