"""Examples in columns: a million short ones take about 100 bytes each, in place of 600 to 1,000.

A table of the user's has texts and one target a row. Its examples are made when they are read.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from tempfile import TemporaryFile, gettempdir
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ptrun.errors import UserError
from ptrun.task.stored import Rows
from ptrun.types import Example

FEW = 10_000
"""Examples that are kept as they are."""
_BLOCK = 8192  # texts that become Arrow together
_TOGETHER, _LETTERS = 512, 2**20  # examples and letters that are tokenized together
T = TypeVar("T")


class ExampleColumns(Rows[Example]):
    """The rows of a table at some places, with their targets; equal targets are one object.

    Args:
        table: the columns `id` and `field NAME`.
        targets: of all rows of the table.
        places: of the examples in the table, in order.
    """

    def __init__(self, table: Any, targets: Sequence[Any], places: NDArray[np.int64]):
        self._table, self._targets, self._places = table, targets, places
        self._names = [name.removeprefix("field ") for name in table.column_names[1:]]

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._places)

    def row(self, place: int) -> Example:
        """Return an example, from 0."""
        at = int(self._places[place])
        name, *texts = (column[at].as_py() for column in self._table.columns)
        return Example(name, dict(zip(self._names, texts, strict=True)), self._targets[at])

    def __iter__(self) -> Iterator[Example]:
        """Yield all."""
        columns = map(self._read, range(self._table.num_columns))
        for target, name, *texts in zip(self.targets(), *columns, strict=True):
            yield Example(name, dict(zip(self._names, texts, strict=True)), target)

    def targets(self) -> Iterator[Any]:
        """Yield the targets."""
        return (self._targets[at] for at in self._places)

    def texts(self) -> list[Iterator[str]]:
        """Return the texts of each field, in the order of their names."""
        order = sorted(range(len(self._names)), key=self._names.__getitem__)
        return [self._read(1 + place) for place in order]

    def pick(self, places: Sequence[int]) -> "ExampleColumns":
        """Return the examples at some places."""
        rows = self._places[np.asarray(places, dtype=np.int64)]
        return ExampleColumns(self._table, self._targets, rows)

    def _read(self, column: int) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            places = self._places[start : start + _BLOCK]
            yield from self._table.column(column).take(places).to_pylist()


def gathered(examples: Iterable[Example]) -> Sequence[Example]:
    """Return examples as a list; many that hold plain texts, as columns.

    Columns are in a file without a name, of which memory holds what is read.
    """
    rows = iter(examples)
    few = list(islice(rows, FEW))
    if len(few) < FEW or not _are_plain(few):
        return [*few, *rows]
    names, rows = list(few[0].fields), chain(few, rows)
    del few
    try:
        return _written(names, rows)
    except OSError as error:
        place = f"{gettempdir()}: {error.strerror or error}"
        raise UserError(f"{place}. Free space there, or set TMPDIR to another folder.") from error


def _written(names: Sequence[str], examples: Iterator[Example]) -> Sequence[Example]:
    """Return examples as Arrow, up to the first block that holds more than texts."""
    import pyarrow

    text = pyarrow.large_string()
    schema = pyarrow.schema([("id", text), *((f"field {name}", text) for name in names)])
    targets, same = list[Any](), dict[str, Any]()
    with TemporaryFile() as file:
        with pyarrow.ipc.new_stream(file, schema) as stream:
            while (block := list(islice(examples, _BLOCK))) and _are_plain(block):
                columns = [[e.id for e in block], *([e.fields[n] for e in block] for n in names)]
                arrays = [pyarrow.array(column, text) for column in columns]
                stream.write_batch(pyarrow.record_batch(arrays, schema=schema))
                for example in block:  # equal targets are one object, as long as they are few
                    target = example.target
                    few = len(same) <= FEW
                    targets.append(same.setdefault(repr(target), target) if few else target)
        file.flush()
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    table = pyarrow.ipc.open_stream(pyarrow.py_buffer(mapped)).read_all()
    written = ExampleColumns(table, targets, np.arange(len(targets)))
    return [*written, *block, *examples] if block else written


def _are_plain(examples: Sequence[Example]) -> bool:
    """Return whether examples have texts alone, of the same fields, and no groups."""
    names = examples[0].fields.keys()
    return all(
        e.group is None
        and e.fields.keys() == names
        and all(isinstance(text, str) for text in e.fields.values())
        for e in examples
    )


def in_parts(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    """Yield examples in parts that are tokenized together: at most 512, or 2^20 letters."""
    for start in range(0, len(examples), _TOGETHER):
        part = examples[start : start + _TOGETHER]
        longest = 1
        for example in part:
            values = (v if isinstance(v, list | tuple) else (v,) for v in example.fields.values())
            texts = (text for value in values for text in value if isinstance(text, str))
            longest = max(longest, sum(map(len, texts)))
        size = max(1, _LETTERS // longest)
        yield from (part[begin : begin + size] for begin in range(0, len(part), size))


def part_of(examples: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """Return the examples at some places."""
    if isinstance(examples, ExampleColumns):
        return examples.pick(places)  # type: ignore[return-value]
    return [examples[place] for place in places]


def targets_of(examples: Sequence[Example]) -> Iterator[Any]:
    """Yield the targets of examples."""
    return (
        examples.targets() if isinstance(examples, ExampleColumns) else (e.target for e in examples)
    )
