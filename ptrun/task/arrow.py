"""Parquet, Arrow files and streams, and folders of `save_to_disk`, read by pyarrow and datasets."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, shown
from ptrun.task.source import Row, class_name, label_names

STATE = "state.json"
"""In a folder of `datasets.Dataset.save_to_disk`."""
_BATCH = 1024  # rows of a file that are read together


def columns(file: Path) -> list[str]:
    """Return the names of the columns of a file, or of a folder of `save_to_disk`."""
    return list(_opened(file, None)[0].names)


def rows(file: Path, columns: Sequence[str]) -> Iterator[Row]:
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
