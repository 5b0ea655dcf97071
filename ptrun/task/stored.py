"""Examples in a memory-mapped Arrow file: read by index, so memory does not grow with their number.

A file has one column, a JSON text for each row, because examples and read-outs differ in what they
hold. `datasets` opens it with `Dataset.from_file`. Behind the Arrow stream stands its hash; a file
that differs from it is made again.
"""

import hashlib
import json
import logging
import mmap
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, overload

from filelock import FileLock

from ptrun.files import drafted, opened

_LOG = logging.getLogger(__name__)
_COLUMN, _CODE = "row", (".py", ".toml")
_WRITTEN = 1024  # rows that a writer holds
_READ = 256  # reads: then the pages that were read are released, as they count as resident memory
_LOG_EVERY = 10.0  # seconds
_DIGEST = 64  # bytes of the hash behind a stream

T = TypeVar("T")


class Rows(Sequence[T]):
    """Rows that are made when they are read: a slice is a list of them."""

    @abstractmethod
    def row(self, place: int) -> T:
        """Return a row, from 0."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        """Return one row, or a list of rows."""
        if isinstance(index, slice):
            return [self.row(place) for place in range(len(self))[index]]
        return self.row(range(len(self))[index])


class Stored(Rows[T]):
    """The rows of a file; each is decoded when it is read."""

    def __init__(self, file: Path, decode: Callable[[dict[str, Any]], T]):
        import pyarrow

        self._decode, self._reads = decode, 0
        with opened(file) as source:
            self._mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
        parts = []
        for part in pyarrow.ipc.open_stream(pyarrow.py_buffer(self._mapped)):
            self._release()
            parts.append(part.column(_COLUMN))
        self._rows = pyarrow.chunked_array(parts, pyarrow.large_string())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows)

    def row(self, place: int) -> T:
        """Return a row, from 0."""
        self._release()
        return self._decode(json.loads(self._rows[place].as_py()))

    def _release(self) -> None:
        self._reads += 1
        if self._reads % _READ == 0:
            self._mapped.madvise(mmap.MADV_DONTNEED)


def stored(
    file: Path, rows: Callable[[], Iterable[Any]], decode: Callable[[dict[str, Any]], T]
) -> Stored[T]:
    """Return the rows of a file, which is written first if it is missing.

    One that is damaged is written again. Other processes wait for the one that writes. The file
    appears when it is complete.
    """
    if not is_intact(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_name(f".{file.name}.lock")):
            if not is_intact(file):
                if os.path.lexists(file):
                    _LOG.warning("%s: damaged; it is made again", file)
                _write(file, rows())
    return Stored(file, decode)


def is_intact(file: Path) -> bool:
    """Return whether a file is there and its end is the hash of its stream.

    A file that keeps its size and time is read once a process.
    """
    if file.is_symlink() or not file.is_file():
        return False
    state = file.stat()
    return _fits(file, state.st_size, state.st_mtime_ns)


@cache
def _fits(file: Path, size: int, _: int) -> bool:
    with opened(file) as source:
        source.seek(max(0, size - _DIGEST))
        return size > _DIGEST and _digest(source, size - _DIGEST) == source.read()


def _digest(source: BinaryIO, size: int) -> bytes:
    """Return the hash of the first `size` bytes of a file."""
    with mmap.mmap(source.fileno(), size, access=mmap.ACCESS_READ) as content:
        return hashlib.sha256(content).hexdigest().encode()


def _write(file: Path, rows: Iterable[Any]) -> None:
    """Write rows, and log their number now and then."""
    import pyarrow

    schema = pyarrow.schema([(_COLUMN, pyarrow.large_string())])
    encode = json.JSONEncoder(default=vars, ensure_ascii=False, separators=(",", ":")).encode
    count, logged, texts = 0, time.monotonic(), map(encode, rows)
    with drafted(file) as target:
        with pyarrow.ipc.new_stream(target, schema) as writer:
            while part := list(islice(texts, _WRITTEN)):
                writer.write_batch(pyarrow.record_batch([part], schema=schema))
                count += len(part)
                if time.monotonic() - logged > _LOG_EVERY:
                    logged = time.monotonic()
                    _LOG.info("%s: %s examples", file, f"{count:,}")
        target.flush()
        target.write(_digest(target, target.tell()))


@cache
def code_of(*folders: Path) -> str:
    """Return a hash of code: files, and those in folders."""
    hashed = hashlib.sha256()
    for folder in folders:
        for file in [folder] if folder.is_file() else sorted(folder.rglob("*")):
            if file.suffix in _CODE:
                hashed.update(file.read_bytes())
    return hashed.hexdigest()
