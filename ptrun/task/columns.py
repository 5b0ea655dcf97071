"""Examples in columns: a million short ones take about 100 bytes each, in place of 600 to 1,000.

A table of the user's has texts and one target a row. Its examples are made when they are read.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from ptrun.types import Example

FEW = 10_000
"""Examples that are kept as they are."""
_BLOCK = 8192  # texts that become Arrow together
_TOGETHER, _LETTERS = 512, 2**20  # examples and letters that are tokenized together
T = TypeVar("T")


class ExampleColumns(Sequence[Example]):
    """Examples as columns, or some of them.

    Args:
        ids: their ids.
        fields: their texts by field.
        targets: their targets; equal ones are one object.
        places: the rows that are examples here, in order.
    """

    def __init__(
        self,
        ids: Any,
        fields: dict[str, Any],
        targets: Sequence[Any],
        places: NDArray[np.int64] | None = None,
    ):
        self._columns, self._places = (ids, fields, targets), places

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._columns[2]) if self._places is None else len(self._places)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        """Return one example, or a list of them."""
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        place = index % len(self) if self._places is None else int(self._places[index])
        ids, fields, targets = self._columns
        texts = {name: column[place].as_py() for name, column in fields.items()}
        return Example(ids[place].as_py(), texts, targets[place])

    def __iter__(self) -> Iterator[Example]:
        """Yield all."""
        names, columns = list(self._columns[1]), map(self._read, self._columns[1].values())
        for name, target, *texts in zip(self.ids(), self.targets(), *columns, strict=True):
            yield Example(name, dict(zip(names, texts, strict=True)), target)

    def ids(self) -> Iterator[str]:
        """Yield the ids."""
        return self._read(self._columns[0])

    def targets(self) -> Iterator[Any]:
        """Yield the targets."""
        targets = self._columns[2]
        return iter(targets) if self._places is None else (targets[i] for i in self._places)

    def texts(self) -> list[Iterator[str]]:
        """Return the texts of each field, in the order of their names."""
        return [self._read(column) for _, column in sorted(self._columns[1].items())]

    def pick(self, places: Sequence[int]) -> "ExampleColumns":
        """Return the examples at some places."""
        own = np.asarray(places, dtype=np.int64)
        return ExampleColumns(*self._columns, own if self._places is None else self._places[own])

    def _read(self, column: Any) -> Iterator[str]:
        for start in range(0, len(self), _BLOCK):
            if self._places is None:
                yield from column.slice(start, _BLOCK).to_pylist()
            else:
                yield from column.take(self._places[start : start + _BLOCK]).to_pylist()


def gathered(examples: Iterable[Example]) -> Sequence[Example]:
    """Return examples as a list; many that hold plain texts, as columns."""
    rows = iter(examples)
    first = list(islice(rows, FEW))
    if len(first) < FEW or not all(isinstance(t, str) for t in first[0].fields.values()):
        return [*first, *rows]
    import pyarrow

    names, same = list(first[0].fields), dict[Any, Any]()
    parts: list[list[Any]] = [[] for _ in range(1 + len(names))]
    targets: list[Any] = []
    every = chain(first, rows)
    del first
    while block := list(islice(every, _BLOCK)):
        targets += (_shared(e.target, same) for e in block)
        parts[0].append(pyarrow.array([e.id for e in block], pyarrow.large_string()))
        for part, name in zip(parts[1:], names, strict=True):
            part.append(pyarrow.array([e.fields[name] for e in block], pyarrow.large_string()))
    ids, *texts = (pyarrow.concat_arrays(part) for part in parts)
    return ExampleColumns(ids, dict(zip(names, texts, strict=True)), targets)


def _shared(target: Any, same: dict[Any, Any]) -> Any:
    """Return an object for equal targets, as labels are."""
    return target if len(same) > FEW else same.setdefault(repr(target), target)


def in_parts(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    """Yield examples in parts that are tokenized together: at most 512, or 2^20 letters."""
    for start in range(0, len(examples), _TOGETHER):
        part = examples[start : start + _TOGETHER]
        size = max(1, _LETTERS // max(1, *map(_letters, part)))
        yield from (part[first : first + size] for first in range(0, len(part), size))


def _letters(example: Example) -> int:
    """Return the number of letters of an example's texts."""
    values = (v if isinstance(v, list | tuple) else (v,) for v in example.fields.values())
    return sum(len(text) for own in values for text in own if isinstance(text, str))


def part_of(examples: Sequence[T], places: Sequence[int]) -> Sequence[T]:
    """Return the examples at some places."""
    if isinstance(examples, ExampleColumns):
        return examples.pick(places)  # type: ignore[return-value]
    return [examples[place] for place in places]


def ids_of(examples: Sequence[Example]) -> Iterator[str]:
    """Yield the ids of examples."""
    return examples.ids() if isinstance(examples, ExampleColumns) else (e.id for e in examples)


def targets_of(examples: Sequence[Example]) -> Iterator[Any]:
    """Yield the targets of examples."""
    return (
        examples.targets() if isinstance(examples, ExampleColumns) else (e.target for e in examples)
    )
