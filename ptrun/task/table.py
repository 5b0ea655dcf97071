"""The user's own tables: how a file is read is found from the file, and each finding can be set.

| what      | found by                                                      | set by      |
|-----------|---------------------------------------------------------------|-------------|
| packing   | first bytes: gzip, bzip2, xz, zstandard, zip of one file      |             |
| form      | first bytes: parquet, Arrow, Excel; else the name; else JSON  | the name    |
|           | by its bracket                                                |             |
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
import json
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from ptrun.errors import UserError, names, near, shown
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

csv.field_size_limit(LONGEST)  # Python's own limit is shorter than a long document
Quoting = Literal["none", "cells"] | None
"""`none`: quotes are plain text; `cells`: they enclose cells, of several lines too; None: they
enclose cells, and rows that look as if two lone quotes had joined them are refused."""
Kind = Literal["parquet", "arrow", "excel", "json", "cells"]
_SEPARATORS = ",;\t|"
_ALLOWED = ".csv, .tsv, .json, .jsonl, .parquet, .arrow or .xlsx"
_NAMED: dict[str, Kind] = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_NAMED |= {".xlsx": "excel", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_NAMED |= {".csv": "cells", ".tsv": "cells", ".txt": "cells", ".tab": "cells"}
_MAGIC: dict[bytes, Kind] = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_LARGEST = 2**31  # bytes of a column in a row group of a parquet file
_Record = TypeVar("_Record")
_BLOCK = 2**20  # bytes that are read together
_BATCH = 1024  # rows of a parquet file that are read together
_TOP = 100  # objects of JSON that name the columns; a row may lack some
_QUOTES = 5000  # bytes in which spaces before quotes are looked for
_STATE = "state.json"  # in a folder of `datasets.Dataset.save_to_disk`
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
            "".encode(self.encoding or "utf-8")
        except LookupError as error:
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
        for file in _streams(self.file) if self.file.is_dir() else [self.file]:
            with file.open("rb") as opened:
                while block := opened.read(_BLOCK):
                    hashed.update(block)
        return f"{''.join(self.file.suffixes[-2:]).lower()} {hashed.hexdigest()}"

    @property
    def found(self) -> str:
        """How it is read, in a few words."""
        packed = f", {kind}" if self.file.is_file() and (kind := packing(self.file)) else ""
        if self.kind != "cells":
            return f"{self.kind}{'' if self.kind == 'excel' else packed}"
        separator = {"\t": "tab", ",": "comma"}.get(self.separator, self.separator)
        encoding = self.given.encoding or encoding_of(start_of(self.file))
        header = "no header" if self.given.columns else "header"
        quotes = ", quotes are text" if self.given.quoting == "none" else ""
        return f"cells separated by {separator}, {header}, {encoding}{quotes}{packed}"


def table(file: Path, given: Given = FOUND) -> Table:
    """Return how a file is read.

    Raises:
        UserError: there is no such file, or it is no table.
    """
    if (file / _STATE).is_file():
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
    close = near(name, own.columns)
    none = own.kind == "cells" and not own.given.columns and not close
    advice = (
        f"\nIf it has no header, name the columns, {len(own.columns)} in all: task.columns=[...] "
        "(ptrun predict: --columns)."
        if none
        else ""
    )
    return UserError(
        f"{own.file}: no column {shown(name)}{close}\n"
        f"Its first line names the columns: {names(own.columns)}{advice}"
    )


def check_file(file: Path) -> None:
    """Refuse a folder or a missing file.

    Raises:
        UserError: names the most similar file in its folder.
    """
    if os.path.isdir(file):
        saved = sorted(f.parent.name for f in file.glob(f"*/{_STATE}"))  # of a DatasetDict
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
    if found is None and named in ("parquet", "arrow", "excel"):
        raise UserError(f"{file}: not {named}, though its name says so.")
    if found is not None:
        return found
    bracket = start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
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
        return list(_schema(own).names)
    if own.kind == "json":
        top = list(islice(json_rows(own.file, own.given.encoding), _TOP))
        return list(dict.fromkeys(name for _, row in top for name in row))
    if own.kind == "excel":
        return _header(*_first(own.file, _sheet(own.file)))
    if own.given.columns:
        return list(own.given.columns)
    return _header(*_first(own.file, _records(own)))


def _header(where: str, cells: Sequence[str]) -> list[str]:
    """Return the column names from the cells of the first row.

    Raises:
        UserError: two columns have the same name.
    """
    named = [str(cell).strip() for cell in cells]  # Excel has numbers too
    for name in named:
        if name and named.count(name) > 1:
            raise UserError(f"{where}: column {shown(name)} appears twice; rename one.")
    return named


def _rows(own: Table, wanted: Sequence[str]) -> Iterator[Row]:
    if own.kind in ("parquet", "arrow"):
        return _batches_rows(own, wanted)
    if own.kind == "json":
        return (Row(w, data) for w, data in json_rows(own.file, own.given.encoding))
    if own.kind == "excel":
        return _under_header(own, _sheet(own.file))
    return _under_header(own, _records(own))


def _under_header(own: Table, records: Iterator[tuple[str, Any]]) -> Iterator[Row]:
    """Yield the rows below the header.

    Raises:
        UserError: a row does not fit the header.
    """
    named = list(own.given.columns or []) or _header(*next(records))
    for where, cells in records:
        if own.kind == "excel":  # a row ends at its last cell, or has notes beside the table
            cells = [*cells, *[""] * len(named)][: len(named)]
        if len(cells) != len(named):
            raise UserError(
                f"{where}: {len(cells)} cells, the header has {len(named)}: {names(named)}\n"
                f"{_repair(own)}"
            )
        yield Row(where, {n: c for n, c in zip(named, cells, strict=True) if n})


def _repair(own: Table) -> str:
    if own.given.columns:
        return f"task.columns names {len(own.given.columns)} columns; name them all."
    if own.given.quoting == "none":
        return "A line break cuts this row in two, or a cell has the separator; join or replace it."
    return 'Put a text with the separator or a line break in double quotes: "a, b".'


def _records(own: Table) -> Iterator[tuple[str, list[str]]]:
    """Yield `file:line` and the cells of each row; blank lines are skipped.

    Raises:
        UserError: a line is not text, or a quote is not closed, or joins rows.
    """
    seen: deque[str] = deque()
    lines = _remembered(_texts(own), seen)
    plain = own.given.quoting == "none"
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    reader = csv.reader(
        lines, delimiter=own.separator, quoting=quoting, strict=True, skipinitialspace=own.spaced
    )
    width = 0
    while True:
        where = f"{own.file}:{reader.line_num + 1 + own.says}"
        seen.clear()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise UserError(
                f"{where}: the row that starts here cannot be read ({error}).\n"
                'Close every quote, and write "" for a quote within quotes. If quotes are plain '
                "text, type task.quoting=none (ptrun predict: --quoting none)."
            ) from error
        if not any(line.strip(" \r\n") for line in seen):
            continue
        if own.given.quoting is None and len(seen) > 1 and width > 1:
            _check_joined(own, where, [*seen], width)
        width = width or len(cells)
        if any("\r" in line.rstrip("\r\n") for line in seen):
            cells = [cell.replace(_RETURN, "\r") for cell in cells]
        yield where, cells


def _check_joined(own: Table, where: str, lines: Sequence[str], width: int) -> None:
    """Refuse a row over several lines of which each would be a row: two lone quotes join them.

    Raises:
        UserError: names the line and both readings.
    """
    if all(line.count(own.separator) == width - 1 for line in lines) and '""' not in "".join(lines):
        raise UserError(
            f"{where}: a quote opens here and closes {len(lines) - 1} lines below, and each of "
            f"these lines has {width} cells.\nIf quotes are plain text, type task.quoting=none "
            "(ptrun predict: --quoting none); if one cell has these lines, task.quoting=cells."
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
        inside = line.rstrip("\r\n")
        yield inside.replace("\r", _RETURN) + line[len(inside) :] if "\r" in inside else line


def _separator(header: str) -> str:
    bare = re.sub(r'"[^"]*"', "", header)
    return max(_SEPARATORS, key=bare.count)


def _first(file: Path, records: Iterator[_Record]) -> _Record:
    for record in records:
        return record
    raise _empty(file)


def _empty(file: Path) -> UserError:
    return UserError(f"{file}: empty; expected a table whose first line names the columns.")


def _sheet(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of the first sheet of an Excel file; rows without any value are skipped.

    Raises:
        UserError: openpyxl is not installed, or the file is damaged.
    """
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(
            f"{file}: an Excel file; type pip install 'ptrun[excel]', or save the sheet as CSV."
        ) from error
    try:
        sheet: Any = load_workbook(file, read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # some programs write a wrong size
        for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
            if any(cell is not None for cell in cells):
                yield f"{file} row {number}", [_cell(cell) for cell in cells]
    except Exception as error:  # openpyxl raises what its XML and zip readers do
        raise UserError(f"{file}: not readable as Excel ({str(error)[:120]}).") from error


def _cell(value: Any) -> Any:
    """Return a cell of a sheet as text or a number; a date as ISO 8601."""
    value = "" if value is None else value
    return value.isoformat().removesuffix("T00:00:00") if isinstance(value, date) else value


def _schema(own: Table) -> Any:
    return _parquet(own.file).schema_arrow if own.kind == "parquet" else _arrow(own.file)[0]


def _parquet(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        plain = pyarrow.parquet.ParquetFile(file)
        texts = [f.name for f in plain.schema_arrow if pyarrow.types.is_string(f.type)]
        return pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


def _arrow(file: Path) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the batches of an Arrow file or stream, or of a folder of streams.

    Raises:
        UserError: they cannot be read.
    """
    import pyarrow

    files = _streams(file) if file.is_dir() else [file]
    try:
        opened = [_reader(one) for one in files]
        return opened[0][0], chain.from_iterable(batches for _, batches in opened)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


def _streams(folder: Path) -> list[Path]:
    """Return the files that `datasets` wrote into a folder."""
    try:
        listed = json.loads((folder / _STATE).read_text("utf-8"))["_data_files"]
        files = [folder / Path(str(one["filename"])).name for one in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / _STATE}: names no files of a data set.") from error
    if not files or not all(one.is_file() for one in files):
        raise UserError(f"{folder}: a file that {_STATE} names is missing.")
    return files


def _reader(file: Path) -> tuple[Any, Iterator[Any]]:
    import pyarrow.ipc

    with file.open("rb") as opened:
        is_file = opened.read(6) == b"ARROW1"
    mapped = pyarrow.memory_map(str(file))
    if not is_file:
        stream = pyarrow.ipc.open_stream(mapped)
        return stream.schema, iter(stream)
    whole = pyarrow.ipc.open_file(mapped)
    return whole.schema, (whole.get_batch(i) for i in range(whole.num_record_batches))


def _batches_rows(own: Table, wanted: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a parquet or Arrow file; numbers of a ClassLabel become its names."""
    import pyarrow

    schema, file = _schema(own), own.file
    for name in wanted:
        if schema.names.count(name) > 1:
            raise UserError(f"{file}: column {shown(name)} appears twice; rename one.")
    labels = _class_labels(schema)
    try:
        for number, data in enumerate(_data(own, wanted), start=1):
            for name in labels.keys() & data.keys():
                data[name] = _named(data[name], labels[name])
            yield Row(f"{file} row {number}", data)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file, error) from error


def _data(own: Table, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    if own.kind == "parquet":
        parquet = _parquet(own.file)
        _check_sizes(own.file, parquet, wanted)
        batches = parquet.iter_batches(_BATCH, columns=list(wanted))
    else:
        batches = (batch.select(list(wanted)) for batch in _arrow(own.file)[1])
    for batch in batches:
        batch.validate(full=True)  # an offset out of the batch would end the process
        yield from _values(batch)


def _class_labels(schema: Any) -> dict[str, Sequence[str]]:
    """Return the names of the classes of each ClassLabel of `datasets`, by column."""
    stored = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(stored)["info"]["features"] if stored else {}
        kinds = {name: own for name, own in features.items() if isinstance(own, dict)}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {
        name: own["names"]
        for name, own in kinds.items()
        if own.get("_type") == "ClassLabel" and isinstance(own.get("names"), list)
    }


def _named(value: Any, classes: Sequence[str]) -> Any:
    """Return the name of a class; another number, such as -1, stays."""
    known = type(value) is int and 0 <= value < len(classes)
    return str(classes[value]) if known else value


def _values(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch one by one: equal texts are stored once, and many are long."""
    seen: dict[tuple[str, int], Any] = {}  # a text by its place in the dictionary of a column
    for place in range(batch.num_rows):
        row = batch.slice(place, 1)
        yield {name: _value(row.column(name), name, seen) for name in batch.schema.names}


def _value(column: Any, name: str, seen: dict[tuple[str, int], Any]) -> Any:
    """Return the value of a column of one row; rows of one text share it."""
    index = column.indices[0].as_py() if hasattr(column, "indices") else None
    if index is None:
        return column[0].as_py()
    if (name, index) not in seen:
        seen[name, index] = column[0].as_py()
    return seen[name, index]


def _check_sizes(file: Path, parquet: Any, wanted: Sequence[str]) -> None:
    """Refuse a row group whose columns do not fit in memory.

    Raises:
        UserError: names the column and its size.
    """
    for group in range(parquet.metadata.num_row_groups):
        columns = parquet.metadata.row_group(group)
        for place in range(columns.num_columns):
            column = columns.column(place)
            if column.path_in_schema.partition(".")[0] not in wanted:
                continue
            if column.total_uncompressed_size > _LARGEST:
                raise UserError(
                    f"{file}: column {shown(column.path_in_schema)} of row group {group + 1} has "
                    f"{column.total_uncompressed_size:,} bytes, more than {_LARGEST:,}. Write it "
                    "with smaller row groups."
                )


def _unreadable(file: Path, error: Exception) -> UserError:
    kind = "parquet" if file.suffix.lower() == ".parquet" else "Arrow"
    return UserError(f"{file}: not readable as {kind} ({' '.join(str(error).split())[:120]}).")
