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

Libraries read: pyarrow parquet and Arrow, openpyxl Excel, csv the cells, in its strict mode. The
CSV readers of pandas, pyarrow and DuckDB take `"fine" x` for the cell `fine x`, pandas fills short
rows, and the sniffer of DuckDB drops or joins rows.
"""

import csv
import hashlib
import logging
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatch
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, Literal

from ptrun.errors import UserError, names, near, shown
from ptrun.task import lines
from ptrun.task.source import Row, check_columns, class_name, label_names

_LOG = logging.getLogger(__name__)
csv.field_size_limit(lines.LONGEST)  # Python's own limit is shorter than a long document
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
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ARROW1": "arrow", b"PK\x03\x04": "excel"}
_MAGIC[b"\xff\xff\xff\xff"] = "arrow"  # a stream
_OTHER = {
    b"<!doctype html": "a page of HTML",
    b"<html": "a page of HTML",
    b"version https://git-lfs": "a pointer of Git LFS; type git lfs pull",
    b"\xd0\xcf\x11\xe0": "an old Excel file; save it as .xlsx or CSV",
    b"__label__": "lines of fastText; write two columns, text and label",
}
"""What a file is that is no table, by its first bytes in small letters."""
_TOP = 100  # objects of JSON that name the columns
_LAST_ROW = 2**20  # of a sheet of Excel
_STATE = "state.json"  # in a folder of `datasets.Dataset.save_to_disk`
_BATCH = 1024  # rows of a file of Arrow that are read together
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
        """Refuse a separator of several characters, and an unknown encoding."""
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
    """A table and how it is read.

    Args:
        file: the file, a folder of `save_to_disk`, or the name of several files.
        kind: its form.
        separator: between the cells of a CSV.
        spaced: whether spaces stand before the quotes of a CSV.
        says: whether the first line of a CSV is `sep=;`.
        form: what the user says of it.
        parts: the files of which it is made, in order: `part-00000.csv`, `part-00001.csv`.
    """

    file: Path
    kind: Kind
    separator: str = ","
    spaced: bool = False
    says: bool = False
    form: Given = FOUND
    parts: "Sequence[Table]" = ()

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        if self.parts:
            return self.parts[0].columns
        if self.kind in ("parquet", "arrow"):
            return list(_opened(self.file, None)[0].names)
        if self.kind == "json":  # a row may lack some
            rows = list(islice(lines.json_rows(self.file, self.form.encoding), _TOP))
            if not rows:
                raise UserError(f"{self.file}: no rows; a table needs at least one.")
            return list(dict.fromkeys(name for _, row in rows for name in row))
        if self.form.columns:
            return list(self.form.columns)
        where, cells = next(self._records(), ("", None))
        if cells is None:
            raise _empty(self.file)
        columns = [str(cell).strip() for cell in cells]  # Excel has numbers too
        for name, times in Counter(columns).items():
            if name and times > 1:
                raise UserError(f"{where}: column {shown(name)} appears twice; rename one.")
        return columns

    def rows(self, columns: Sequence[str]) -> Iterator[Row]:
        """Yield the rows, in order; `where` is the first line of a row. Blank lines are none."""
        self.check(columns)
        if self.parts:
            return chain.from_iterable(part.rows(columns) for part in self.parts)
        if self.kind in ("parquet", "arrow"):
            rows = _arrow_rows(self.file, columns)
        elif self.kind == "json":
            rows = (Row(*pair) for pair in lines.json_rows(self.file, self.form.encoding))
        else:
            rows = self._under_header()
        top = list(islice(rows, 1))
        if not top:
            raise UserError(f"{self.file}: no rows below the header; a table needs at least one.")
        return chain(top, rows)

    def check(self, columns: Sequence[str]) -> None:
        """Refuse columns that the table does not have."""
        for table in self.parts or (self,):
            more = "\nIts first sheet is read." if table.kind == "excel" else ""
            if table.kind == "cells" and len(table.columns) == 1:
                more = f"\nIt is read as {table.found}; task.separator=... sets another separator."
            elif table.kind == "cells" and not self.form.columns:
                more = (
                    f"\nIf it has no header, name the columns, {len(table.columns)} in all: "
                    "task.columns=[...] (ptrun predict: --columns)."
                )
            check_columns(columns, table.file, table.columns, more)

    def identity(self) -> str:
        """Return what identifies the rows: the form, and the SHA-256 of all files in hex."""
        if self.parts:
            return " ".join(part.identity() for part in self.parts)
        hashed = hashlib.sha256()
        for file in sorted(self.file.glob("*.arrow")) if self.file.is_dir() else [self.file]:
            with file.open("rb") as opened:
                hashlib.file_digest(opened, lambda: hashed)
        return f"{''.join(self.file.suffixes[-2:]).lower()} {hashed.hexdigest()}"

    @property
    def found(self) -> str:
        """How it is read, in a few words."""
        if self.parts:
            return f"{len(self.parts)} files of {self.parts[0].found}"
        packed = f", {kind}" if self.file.is_file() and (kind := lines.packing(self.file)) else ""
        if self.kind != "cells":
            return "excel" if self.kind == "excel" else f"{self.kind}{packed}"
        separator = {"\t": "tab", ",": "comma"}.get(self.separator, self.separator)
        encoding = self.form.encoding or lines.encoding_of(lines.start_of(self.file))
        header = "no header" if self.form.columns else "header"
        quotes = ", quotes are text" if self.form.quoting == "none" else ""
        return f"cells separated by {separator}, {header}, {encoding}{quotes}{packed}"

    def _under_header(self) -> Iterator[Row]:
        """Yield the rows below the header."""
        columns = self.columns
        for where, cells in islice(self._records(), 0 if self.form.columns else 1, None):
            if self.kind == "excel":  # a row ends at its last cell, or has notes beside the table
                cells = [*cells, *[""] * len(columns)][: len(columns)]
            if len(cells) != len(columns):
                advice = 'Put a text with the separator or a line break in double quotes: "a, b".'
                if any('\\"' in cell or cell.endswith("\\") for cell in cells):
                    advice = 'If quotes within quotes are written \\", type task.quoting=backslash.'
                if self.form.quoting == "none":
                    advice = "A line break cuts this row in two, or a cell has the separator."
                if self.form.columns:
                    advice = "task.columns (ptrun predict: --columns) names all columns."
                raise UserError(
                    f"{where}: {len(cells)} cells, the header has {len(columns)}: "
                    f"{names(columns)}\n{advice}"
                )
            if str(cells[0]).strip() == columns[0] and [str(c).strip() for c in cells] == columns:
                advice = "Leave out task.columns (ptrun predict: --columns)."
                advice = advice if self.form.columns else "Delete this line; it is no row."
                raise UserError(f"{where}: the names of the columns again. {advice}")
            pairs = zip(columns, cells, strict=True)
            yield Row(where, {name: cell for name, cell in pairs if name})

    def _records(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield `file:line` and cells of rows; a blank line is a row in a file of one column."""
        if self.kind == "excel":
            yield from _sheet(self.file)
            return
        escape = self.form.quoting == "backslash"
        reader = csv.reader(
            self._lines(),
            delimiter=self.separator,
            quoting=csv.QUOTE_NONE if self.form.quoting == "none" else csv.QUOTE_MINIMAL,
            escapechar="\\" if escape else None,
            doublequote=not escape,
            strict=True,
            skipinitialspace=self.spaced,
        )
        width, line, blank = 0, 1 + self.says, list[str]()
        try:
            for cells in reader:
                where, count = f"{self.file}:{line}", reader.line_num + 1 + self.says - line
                line += count
                if not cells or (len(cells) == 1 and cells[0] and not cells[0].strip(" \x1a")):
                    blank.append(where)  # Ctrl-Z ends files of DOS
                    continue
                if count > 1 and width and self.form.quoting is None:
                    self._check_joined(where, count, cells, width)
                if width == 1:
                    yield from ((place, [""]) for place in blank)
                blank.clear()
                width = width or len(cells)
                yield where, [cell.replace(_RETURN, "\r") for cell in cells]
        except csv.Error as error:
            raise UserError(
                f"{self.file}:{line}: the row that starts here cannot be read ({error}).\nClose "
                'every quote, and write "" for a quote within quotes; for \\" type '
                "task.quoting=backslash. If quotes are plain text, type task.quoting=none (ptrun "
                "predict and import: --quoting none)."
            ) from error

    def _lines(self) -> Iterator[str]:
        """Yield the lines of a CSV as csv reads them."""
        numbered = lines.text_lines(self.file, self.form.encoding)
        for where, line in islice(numbered, int(self.says), None):
            if "\0" in line:
                raise UserError(f"{where}: a NUL byte; save the file as UTF-8 text.")
            if "\r" in line:
                inside = line.rstrip("\r\n")
                line = inside.replace("\r", _RETURN) + line[len(inside) :]
            yield line

    def _check_joined(self, where: str, count: int, cells: Sequence[str], width: int) -> None:
        """Refuse a row of several lines of which each would be a row: two lone quotes join them."""
        # a program that writes quotes within cells closes them; tabs are rare in texts
        written = self.separator != "\t" and any('"' in cell for cell in cells)
        rows = [row for row in self.separator.join(cells).split("\n") if row.strip(" \r")]
        if all(row.count(self.separator) == width - 1 for row in rows) and not written:
            raise UserError(
                f"{where}: a quote opens here and closes {count - 1} lines below, and each "
                f"of these lines has {width} cells.\nIf quotes are plain text, type "
                "task.quoting=none (ptrun predict and import: --quoting none); if one cell has "
                "these lines, task.quoting=cells (--quoting cells)."
            )


def _sheet(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of the first sheet of an Excel file; blank ones at its ends are none."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(
            f"{file}: an Excel file; type pip install 'ptrun[excel]', or save the sheet as CSV."
        ) from error
    last = 0
    try:
        with file.open("rb") as opened:  # whatever its name
            sheet = load_workbook(opened, read_only=True, data_only=True).worksheets[0]
            sheet.reset_dimensions()  # some programs write a wrong size
            for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
                if number > _LAST_ROW:
                    raise ValueError(f"a row below {_LAST_ROW:,}, Excel's last")
                if all(cell is None for cell in cells):
                    continue
                if last:
                    yield from ((f"{file} row {row}", []) for row in range(last + 1, number))
                yield f"{file} row {number}", [*map(_cell, cells)]
                last = number
    except Exception as error:  # openpyxl raises what its XML and zip readers do
        raise UserError(f"{file}: not readable as Excel ({str(error)[:120]}).") from error


def _cell(value: Any) -> Any:
    """Return a cell of a sheet as text or a number; a date as ISO 8601."""
    value = "" if value is None else value
    return value.isoformat().removesuffix("T00:00:00") if isinstance(value, date) else value


def table(file: Path, form: Given = FOUND) -> Table:
    """Return how a file is read, or the files of a folder whose names differ only in a number."""
    if files := _files(file):
        parts = [_one(part, form) for part in files]
        return Table(file, parts[0].kind, parts=parts)
    if shard := _SHARD.fullmatch(file.name):
        pattern = file.with_name(f"{shard[1]}-*{shard[2]}")
        _LOG.warning("%s: one of several files; '%s' names them all", file, pattern)
    return _one(file, form)


def _files(file: Path) -> list[Path]:
    """Return the files that a name with a * stands for, or a folder of numbered files."""
    if "*" in file.name and not os.path.exists(file):
        beside = file.parent.iterdir() if file.parent.is_dir() else ()
        return sorted(path for path in beside if fnmatch(path.name, file.name) and path.is_file())
    if not os.path.isdir(file) or (file / _STATE).is_file():
        return []
    inside = sorted(f for f in file.iterdir() if f.is_file() and f.name[0] not in "._")
    alike = {re.sub(r"\d+", "#", path.name) for path in inside}
    return inside if len(alike) == 1 and "#" in alike.pop() else []


def _one(file: Path, form: Given) -> Table:
    """Return how one file is read."""
    if (file / _STATE).is_file():
        return Table(file, "arrow", form=form)
    check_file(file)
    kind = _kind(file)
    if kind != "cells":
        return Table(file, kind, form=form)
    text = lines.top_of(file, form.encoding)
    top = text.lstrip("\ufeff\r\n ").partition("\n")[0].partition("\r")[0]
    says = re.fullmatch(r"sep=(.)\s*", top)
    separator = max(_SEPARATORS, key=re.sub(r'"[^"]*"', "", top).count)
    separator = "\t" if lines.unpacked_name(file).suffix.lower() == ".tsv" else separator
    separator = says[1] if says else separator
    separator = {None: separator, "tab": "\t"}.get(form.separator, form.separator or "")
    spaced = _SPACED.search(_QUOTED.sub("", text)) is not None
    return Table(file, kind, separator, spaced, says is not None, form)


def check_file(file: Path) -> None:
    """Refuse a folder or a missing file."""
    if os.path.isdir(file):
        saved = sorted(f.parent.name for f in file.glob(f"*/{_STATE}"))  # a DatasetDict
        inside = names(saved or sorted(f.name for f in file.iterdir() if f.is_file()))
        part = "of its parts" if saved else "file"
        raise UserError(f"{file}: a folder; name one {part}, as {file}/{inside or 'train.csv'}")
    if not os.path.isfile(file):  # unlike pathlib, it does not raise on a name that is too long
        beside = [f.name for f in file.parent.iterdir()] if os.path.isdir(file.parent) else []
        raise UserError(f"{file}: no such file below {Path.cwd()}{near(file.name, beside)}")


def _kind(file: Path) -> Kind:
    """Return the form of a file's content."""
    packed = lines.packing(file)
    if packed == "zip" and _holds_sheets(file):
        return "excel"
    start = lines.start_of(file)
    if not start:
        raise _empty(file)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    if kind is not None and packed:
        raise UserError(f"{file}: {kind} inside {packed}; unpack it.")
    if kind is not None:
        return kind
    top = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, what in _OTHER.items():
        if top.lower().startswith(magic):
            raise UserError(f"{file}: {what}, no table.")
    named = _NAMED.get(lines.unpacked_name(file).suffix.lower())
    if named in ("parquet", "arrow", "excel"):
        raise UserError(f"{file}: not {named}, though its name says so.")
    if re.match(rb'(\[\s*)?\{\s*"[^"\n]*"\s*:', top):
        return "json"
    if named is None and packed != "zip":  # in a zip the file inside has the name
        raise UserError(f"{file}: unknown kind of file; save the table as one of {_ALLOWED}.")
    return named or "cells"


def _holds_sheets(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            is_sheet = "xl/workbook.xml" in archive.namelist()
            size = sum(member.file_size for member in archive.infolist())
            if is_sheet and size > lines.most_bytes(file):
                raise lines.grown(file)
            return is_sheet
    except (zipfile.BadZipFile, OSError) as error:
        raise UserError(f"{file}: a damaged Excel or zip file ({error}).") from error


def _empty(file: Path) -> UserError:
    return UserError(f"{file}: empty; expected a table whose first line names the columns.")


# Parquet, Arrow files and streams, and folders of `save_to_disk`, read by pyarrow and datasets.


def _arrow_rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a file or folder; numbers of a ClassLabel become its names."""
    schema, batches = _opened(file, list(columns))
    for name in columns:
        if schema.names.count(name) > 1:
            raise UserError(f"{file}: column {shown(name)} appears twice; rename one.")
    classes, numbers = _classes(schema), count(1)
    try:
        for batch in batches:
            batch.validate(full=True)  # an offset out of the batch would end the process
            cells = [_cells(batch[name], classes.get(name)) for name in columns]
            for values in zip(*cells, strict=True):
                yield Row(f"{file} row {next(numbers)}", dict(zip(columns, values, strict=True)))
    except (ImportError, OSError, ValueError, LookupError, RuntimeError) as error:
        raise _unreadable(file, error) from error


def _opened(file: Path, columns: list[str] | None) -> tuple[Any, Iterable[Any]]:
    """Return the schema of a file or folder, and its batches of some columns."""
    import pyarrow.parquet

    try:
        if file.is_dir():
            from datasets import load_from_disk

            table = load_from_disk(str(file)).data.table
            return table.schema, table.select(columns or []).to_batches(_BATCH)
        with file.open("rb") as opened:
            magic = opened.read(6)
        if magic.startswith(b"PAR1"):
            schema = pyarrow.parquet.read_schema(file)
            texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
            parquet = pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
            return schema, parquet.iter_batches(_BATCH, columns=columns or [])
        mapped = pyarrow.memory_map(str(file))
        if magic != b"ARROW1":
            stream = pyarrow.ipc.open_stream(mapped)
            return stream.schema, (batch.select(columns) for batch in stream)
        arrow = pyarrow.ipc.open_file(mapped)
        batches = map(arrow.get_batch, range(arrow.num_record_batches))
        return arrow.schema, (batch.select(columns) for batch in batches)
    except (OSError, ValueError, LookupError, RuntimeError, TypeError) as error:
        raise _unreadable(file, error) from error


def _classes(schema: Any) -> dict[str, list[str] | None]:
    """Return the names of the classes of each column, where `datasets` wrote the file."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import Features

    try:
        features = Features.from_arrow_schema(schema)
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: label_names(feature) for name, feature in features.items()}


def _cells(column: Any, classes: list[str] | None) -> list[Any]:
    """Return a column; equal texts, of which many may be long, are stored once."""
    if hasattr(column, "indices"):
        texts = column.dictionary.to_pylist()
        return [None if i is None else texts[i] for i in column.indices.to_pylist()]
    return [class_name(value, classes) for value in column.to_pylist()]


def _unreadable(file: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:120]
    return UserError(f"{file}: not readable as parquet or Arrow ({reason}).")
