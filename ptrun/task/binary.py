"""Tables that are no text: parquet, Arrow files and streams, `save_to_disk` folders, Excel."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, names, shown
from ptrun.task.source import Row, class_name

STATE = "state.json"
"""In a folder of `datasets.Dataset.save_to_disk`."""
_BATCH = 1024  # rows of a parquet file that are read together
_LARGEST = 2**31  # bytes of a column in a row group of a parquet file


def columns(file: Path) -> list[str]:
    """Return the names of the columns of a file, or of a folder of `save_to_disk`.

    Raises:
        UserError: it cannot be read.
    """
    return list(_schema(file).names)


def rows(file: Path, wanted: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a file or folder; numbers of a ClassLabel become its names.

    Raises:
        UserError: it cannot be read, or has a wanted column twice.
    """
    import pyarrow

    schema = _schema(file)
    for name in wanted:
        if schema.names.count(name) > 1:
            raise UserError(f"{file}: column {shown(name)} appears twice; rename one.")
    labels = _class_labels(schema)
    try:
        for number, data in enumerate(_data(file, wanted), start=1):
            for name in labels.keys() & data.keys():
                data[name] = class_name(data[name], labels[name])
            yield Row(f"{file} row {number}", data)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file, error) from error


def streams(folder: Path) -> list[Path]:
    """Return the files that `datasets` wrote into a folder.

    Raises:
        UserError: the folder does not name them, or one is missing.
    """
    try:
        listed = json.loads((folder / STATE).read_text("utf-8"))["_data_files"]
        files = [folder / Path(str(one["filename"])).name for one in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / STATE}: names no files of a data set.") from error
    if not files or not all(one.is_file() for one in files):
        raise UserError(f"{folder}: a file that {STATE} names is missing.")
    return files


def _is_parquet(file: Path) -> bool:
    if file.is_dir():
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"PAR1"


def _schema(file: Path) -> Any:
    return _parquet(file).schema_arrow if _is_parquet(file) else _arrow(file)[0]


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

    files = streams(file) if file.is_dir() else [file]
    try:
        opened = [_reader(one) for one in files]
        return opened[0][0], chain.from_iterable(batches for _, batches in opened)
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error


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


def _data(file: Path, wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    if _is_parquet(file):
        parquet = _parquet(file)
        _check_sizes(file, parquet, wanted)
        batches = parquet.iter_batches(_BATCH, columns=list(wanted))
    else:
        batches = (batch.select(list(wanted)) for batch in _arrow(file)[1])
    for batch in batches:
        batch.validate(full=True)  # an offset out of the batch would end the process
        yield from _values(batch)


def _class_labels(schema: Any) -> dict[str, list[str]]:
    """Return the names of the classes of each ClassLabel of `datasets`, or of a list of them."""
    stored = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(stored)["info"]["features"] if stored else {}
        found = {name: _classes(own) for name, own in features.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    return {name: own for name, own in found.items() if own}


def _classes(feature: Any) -> list[str] | None:
    inside = feature[0] if isinstance(feature, list) and feature else feature
    if not isinstance(inside, dict):
        return None
    if inside.get("_type") in ("List", "LargeList", "Sequence"):
        return _classes(inside.get("feature"))
    classes = inside.get("names") if inside.get("_type") == "ClassLabel" else None
    return classes if isinstance(classes, list) else None


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
    kind = "parquet" if _is_parquet(file) else "Arrow"
    return UserError(f"{file}: not readable as {kind} ({' '.join(str(error).split())[:120]}).")


def sheet(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of the first sheet of an Excel file; one without any value has empty cells.

    Such rows at the end are none.

    Raises:
        UserError: openpyxl is not installed, or the file is damaged.
    """
    begun, blank = False, []
    try:
        with _book(file) as book:
            first = book.worksheets[0]
            first.reset_dimensions()  # some programs write a wrong size
            for number, cells in enumerate(first.iter_rows(values_only=True), start=1):
                row = f"{file} row {number}", [_cell(cell) for cell in cells]
                if all(cell is None for cell in cells):
                    blank += [row] if begun else []
                    continue
                yield from blank
                yield row
                begun, blank = True, []
    except Exception as error:  # openpyxl raises what its XML and zip readers do
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file}: not readable as Excel ({str(error)[:120]}).") from error


@contextmanager
def _book(file: Path) -> Iterator[Any]:
    """Open an Excel file, whatever its name."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise UserError(
            f"{file}: an Excel file; type pip install 'ptrun[excel]', or save the sheet as CSV."
        ) from error
    with file.open("rb") as opened:
        book = load_workbook(opened, read_only=True, data_only=True)
        yield book
        book.close()


def first_of(file: Path) -> str:
    """Return which sheet is read, if there are several."""
    with _book(file) as book:
        titles = book.sheetnames
    return f" sheet {shown(titles[0])}, the first of {names(titles)}" if len(titles) > 1 else ""


def _cell(value: Any) -> Any:
    """Return a cell of a sheet as text or a number; a date as ISO 8601."""
    value = "" if value is None else value
    return value.isoformat().removesuffix("T00:00:00") if isinstance(value, date) else value
