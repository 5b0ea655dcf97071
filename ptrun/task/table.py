"""The user's own tables: CSV, TSV, JSON lines and parquet, recognized by name and content."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from ptrun.errors import UserError
from ptrun.task.delimited import Quoting, delimited_rows, header, records
from ptrun.task.lines import json_lines
from ptrun.task.shown import names, near, shown
from ptrun.task.source import Row

_Record = TypeVar("_Record")
_ALLOWED = ".csv, .tsv, .jsonl (each also with .gz) or .parquet"
_LARGEST = 2**31  # bytes of a column in a row group of a parquet file
_BATCH = 1024  # rows of a parquet file that are read together
_SAVE_AS = "an Excel or zip file; save the sheet as CSV (UTF-8) and name that file"
_FOREIGN = {
    b"PK\x03\x04": _SAVE_AS,
    b"\xd0\xcf\x11\xe0": _SAVE_AS,
    b"PAR1": "a parquet file; rename it to end in .parquet",
    b"\x1f\x8b": "a gzip file; rename it to end in .gz",
}


def columns(file: Path, quoting: Quoting = None) -> list[str]:
    """Return the column names of a table; `quoting` is that of a CSV or TSV.

    Raises:
        UserError: there is no such table, or its first line names no columns.
    """
    form = _form(file)
    if form == ".parquet":
        return list(_parquet(file).schema_arrow.names)
    if form == ".jsonl":
        return list(_first(file, json_lines(file))[1])
    return header(*_first(file, records(file, form, quoting)))


def rows(file: Path, wanted: Sequence[str], quoting: Quoting = None) -> Iterator[Row]:
    """Yield the rows of a table; `where` is the first line of a row.

    Raises:
        UserError: a wanted column is missing, a row does not fit the header, or there is no row.
    """
    check_columns(file, wanted, quoting)
    every = _rows(file, wanted, quoting)
    first = next(every, None)
    if first is None:
        raise UserError(f"{file}: no rows below the header; a table needs at least one.")
    return chain([first], every)


def check_columns(file: Path, wanted: Sequence[str], quoting: Quoting = None) -> None:
    """Refuse columns that a table does not have.

    Raises:
        UserError: names the column, the most similar one, and all columns.
    """
    present = columns(file, quoting)
    for name in wanted:
        if name not in present:
            raise UserError(
                f"{file}: no column {shown(name)}{near(name, present)}\n"
                f"Its first line names the columns: {names(present)}"
            )


def check_file(file: Path) -> None:
    """Refuse a folder or a missing file.

    Raises:
        UserError: names the most similar file in its folder.
    """
    if os.path.isdir(file):
        inside = names(sorted(f.name for f in file.iterdir() if f.is_file()))
        raise UserError(f"{file}: a folder; name one file, as {file}/{inside or 'train.csv'}")
    if not os.path.isfile(file):  # unlike pathlib, it does not raise on a name that is too long
        beside = [f.name for f in file.parent.iterdir()] if os.path.isdir(file.parent) else []
        raise UserError(f"{file}: no such file below {Path.cwd()}{near(file.name, beside)}")


def _rows(file: Path, wanted: Sequence[str], quoting: Quoting) -> Iterator[Row]:
    form = _form(file)
    if form == ".parquet":
        return _parquet_rows(file, wanted)
    if form == ".jsonl":
        return (Row(where, data) for where, data in json_lines(file))
    return delimited_rows(file, form, quoting)


def _form(file: Path) -> str:
    """Return the suffix without `.gz`, which selects the reader; refuse a file of another kind."""
    check_file(file)
    lower = file.name.lower().removesuffix(".gz")
    form = Path(lower).suffix
    if form in (".xlsx", ".xls", ".ods"):
        raise UserError(f"{file}: {_SAVE_AS}.")
    if form not in (".csv", ".tsv", ".jsonl") and not file.name.lower().endswith(".parquet"):
        raise UserError(f"{file}: unknown kind of file; its name must end in {_ALLOWED}.")
    _check_content(file, packed=lower != file.name.lower(), form=form)
    return form


def _check_content(file: Path, *, packed: bool, form: str) -> None:
    """Refuse a file whose first bytes do not match its name."""
    expected = b"\x1f\x8b" if packed else b"PAR1" if form == ".parquet" else b""
    with file.open("rb") as opened:
        start = opened.read(4)
    if not start:
        raise _empty(file)
    if not start.startswith(expected):
        raise UserError(f"{file}: not {_FOREIGN[expected].split(';')[0]}, though its name says so.")
    for magic, what in _FOREIGN.items():
        if magic != expected and start.startswith(magic):
            raise UserError(f"{file}: {what}.")


def _first(file: Path, records: Iterator[_Record]) -> _Record:
    for record in records:
        return record
    raise _empty(file)


def _empty(file: Path) -> UserError:
    return UserError(f"{file}: empty; expected a table whose first line names the columns.")


def _parquet(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        plain = pyarrow.parquet.ParquetFile(file)
        texts = [f.name for f in plain.schema_arrow if pyarrow.types.is_string(f.type)]
        return pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
    except (pyarrow.ArrowException, OSError) as error:
        raise _damaged(file, error) from error


def _parquet_rows(file: Path, wanted: Sequence[str]) -> Iterator[Row]:
    import pyarrow

    parquet = _parquet(file)
    for name in wanted:
        if parquet.schema_arrow.names.count(name) > 1:
            raise UserError(f"{file}: column {shown(name)} appears twice; rename one.")
    try:
        _check_sizes(file, parquet, wanted)
        batches = parquet.iter_batches(_BATCH, columns=list(wanted))
        records = (row for batch in batches for row in _records(batch))
        for number, data in enumerate(records, start=1):
            yield Row(f"{file} row {number}", data)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _damaged(file, error) from error


def _records(batch: Any) -> Iterator[dict[str, Any]]:
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


def _damaged(file: Path, error: Exception) -> UserError:
    return UserError(f"{file}: not readable as parquet ({' '.join(str(error).split())[:120]}).")
