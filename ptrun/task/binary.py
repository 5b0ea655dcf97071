"""Tables that are no text: parquet, Arrow files and streams, `save_to_disk` folders, Excel."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from itertools import chain, count
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, names, shown
from ptrun.task.source import Row, class_name, label_names

STATE = "state.json"
"""In a folder of `datasets.Dataset.save_to_disk`."""
_BATCH = 1024  # rows of a parquet file that are read together


def columns(file: Path) -> list[str]:
    """Return the names of the columns of a file, or of a folder of `save_to_disk`."""
    return list(_open(file)[0].names)


def rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a file or folder; numbers of a ClassLabel become its names."""
    import pyarrow

    schema, batches = _open(file)
    for name in columns:
        if schema.names.count(name) > 1:
            raise UserError(f"{file}: column {shown(name)} appears twice; rename one.")
    classes = _classes(schema)
    numbers = count(1)
    try:
        for batch in batches(columns):
            batch.validate(full=True)  # an offset out of the batch would end the process
            for data in _values(batch):
                for name in classes.keys() & data.keys():
                    data[name] = class_name(data[name], classes[name])
                yield Row(f"{file} row {next(numbers)}", data)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise _unreadable(file, error) from error


def streams(folder: Path) -> list[Path]:
    """Return the files that `datasets` wrote into a folder."""
    try:
        listed = json.loads((folder / STATE).read_text("utf-8"))["_data_files"]
        files = [folder / Path(str(file["filename"])).name for file in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / STATE}: names no files of a data set.") from error
    if not files or not all(file.is_file() for file in files):
        raise UserError(f"{folder}: a file that {STATE} names is missing.")
    return files


def _starts(file: Path, magic: bytes) -> bool:
    if file.is_dir():
        return False
    with file.open("rb") as opened:
        return opened.read(len(magic)) == magic


def _open(file: Path) -> tuple[Any, Callable[[Sequence[str]], Iterator[Any]]]:
    """Return the schema of a file, and what yields batches of some columns."""
    import pyarrow.parquet

    try:
        if _starts(file, b"PAR1"):
            schema = pyarrow.parquet.read_schema(file)
            texts = [field.name for field in schema if pyarrow.types.is_string(field.type)]
            parquet = pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
            return schema, lambda columns: parquet.iter_batches(_BATCH, columns=list(columns))
        parts = [_reader(part) for part in (streams(file) if file.is_dir() else [file])]
    except (pyarrow.ArrowException, OSError) as error:
        raise _unreadable(file, error) from error
    batches = chain.from_iterable(batches for _, batches in parts)
    return parts[0][0], lambda columns: (batch.select(list(columns)) for batch in batches)


def _reader(file: Path) -> tuple[Any, Iterator[Any]]:
    """Return the schema and the batches of an Arrow file or stream."""
    import pyarrow.ipc

    mapped = pyarrow.memory_map(str(file))
    if not _starts(file, b"ARROW1"):
        stream = pyarrow.ipc.open_stream(mapped)
        return stream.schema, iter(stream)
    opened = pyarrow.ipc.open_file(mapped)
    return opened.schema, (opened.get_batch(i) for i in range(opened.num_record_batches))


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


def _values(batch: Any) -> Iterator[dict[str, Any]]:
    """Yield the rows of a batch; equal texts, of which many may be long, are stored once."""
    texts: dict[tuple[str, int | None], Any] = {}  # by column and place in its dictionary
    for place in range(batch.num_rows):
        row: dict[str, Any] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if not hasattr(column, "indices"):
                row[name] = column[place].as_py()
                continue
            text = name, column.indices[place].as_py()
            if text not in texts:
                texts[text] = column[place].as_py()
            row[name] = texts[text]
        yield row


def _unreadable(file: Path, error: Exception) -> UserError:
    kind = "parquet" if _starts(file, b"PAR1") else "Arrow"
    return UserError(f"{file}: not readable as {kind} ({' '.join(str(error).split())[:120]}).")


def sheet(file: Path) -> Iterator[tuple[str, list[Any]]]:
    """Yield the rows of the first sheet of an Excel file; one without any value has empty cells.

    Such rows at the end are none.
    """
    begun, blank = False, []
    try:
        with _book(file) as book:
            sheet = book.worksheets[0]
            sheet.reset_dimensions()  # some programs write a wrong size
            for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
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
