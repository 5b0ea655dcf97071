"""Opening files that somebody else may have made, and making files among them.

A file is opened only if it is a regular one: a pipe would wait for ever, a device never ends. A
link at the end of its path is not followed: it could lead to any file of the user. No more is read
than the format can need. A new file is a draft that takes the place of the old one.

Processes on other machines read and replace the same files, as on NFS. A file that was replaced
while it was read is a stale handle there, and a file that is open elsewhere may refuse to be
replaced for a moment. Both pass, so both are tried again.
"""

import errno
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom, BufferedReader
from pathlib import Path
from typing import Any, TypeVar

LIMIT = 100_000_000
"""Bytes of the largest JSON, YAML or journal that is read."""
_PASSING = (errno.ESTALE, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EAGAIN)
_TRIES, _PAUSE = 5, 0.1  # times; seconds
_MODE = 0o666  # before the user's umask
T = TypeVar("T")


def opened(file: Path, *, links: bool = False) -> BufferedReader:
    """Open a regular file for reading.

    Args:
        file: its path.
        links: follow a link at its end, as in the hub's cache and for paths that the user types.

    Raises:
        OSError: it is missing, a link, or no regular file.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        handle = os.open(file, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and file.is_symlink() and not links:
            raise OSError(errno.EPERM, "a link, which is not followed here", str(file)) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(file))
    if links and file.resolve().is_relative_to("/proc"):  # /proc/self/environ is a regular file
        os.close(handle)
        raise OSError(errno.EPERM, "a file of the system", str(file))
    return os.fdopen(handle, "rb")


def read_bytes(file: Path, limit: int = LIMIT, *, links: bool = False) -> bytes:
    """Return the content of a regular file; one over `limit` bytes is an OSError."""
    with opened(file, links=links) as source:
        content = source.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EINVAL, f"larger than {limit // 10**6:,} MB", str(file))
    return content


def read_text(
    file: Path, errors: str = "strict", *, limit: int = LIMIT, links: bool = False
) -> str:
    """Return the text of a file that may be replaced meanwhile; `errors` as in `open`."""
    content = _tried(lambda: read_bytes(file, limit, links=links), (errno.ESTALE,))
    return content.decode("utf-8", errors).replace("\r\n", "\n").replace("\r", "\n")


def read_json(
    file: Path, *, limit: int = LIMIT, links: bool = False, hook: Callable[[Any], Any] | None = None
) -> Any:
    """Return the content of a JSON file, as `read_text` and `from_json`."""
    return from_json(read_text(file, limit=limit, links=links), hook)


def from_json(text: str | bytes, hook: Callable[[Any], Any] | None = None) -> Any:
    """Return the content of JSON text.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text, object_hook=hook)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


@contextmanager
def opened_tensors(file: Path, framework: str = "np", *, links: bool = False) -> Iterator[Any]:
    """Open a safetensors file, as `safetensors.safe_open`; a damaged one is a ValueError.

    torch is imported for "pt" alone.
    """
    from safetensors import SafetensorError, safe_open

    opened(file, links=links).close()  # the library waits for a pipe
    try:
        with safe_open(file, framework) as tensors:
            yield tensors
    except SafetensorError as error:
        raise ValueError(str(error)) from error


@contextmanager
def drafted(file: Path) -> Iterator[BufferedRandom]:
    """Open a draft that takes the place of a file at the end, atomically.

    After a crash the file is complete or as before; after an error no draft is left.
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with _named(file), created(draft) as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        replace(draft, file)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def created(file: Path) -> BufferedRandom:
    """Create a file for writing and reading, in place of a draft that a killed process left."""
    with suppress(FileNotFoundError):
        file.unlink()  # a link itself, never what it leads to
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(file, flags, _MODE), "w+b")


def write_text(file: Path, text: str) -> None:
    """Write a text file atomically, as `drafted`."""
    with drafted(file) as target:
        target.write(text.encode())


def append(file: Path, text: str) -> None:
    """Append text to a regular file, which is created if it is missing."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _named(file), os.fdopen(os.open(file, flags, _MODE), "ab") as target:
        if not stat.S_ISREG(os.fstat(target.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(file))
        target.write(text.encode())


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Name the file in an error of the system that names none."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def below(outputs: Path, *parts: str) -> Path:
    """Return a path below the folder of runs, which may be a link itself; no other leads out."""
    path = outputs.joinpath(*parts)
    if not path.resolve().is_relative_to(outputs.resolve()):
        raise OSError(errno.EXDEV, f"leads out of {outputs} by a link", str(path))
    return path


def replace(draft: Path, file: Path) -> None:
    """Put a draft in the place of a file, atomically."""
    _tried(lambda: draft.replace(file), _PASSING)


def _tried(act: Callable[[], T], passing: tuple[int, ...]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return act()
        except OSError as error:
            if error.errno not in passing:
                raise
        time.sleep(_PAUSE)
    return act()


# Cells of CSV and TSV files, which spreadsheets read: some texts would be run as formulas.

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe(value: Any) -> Any:
    """Return a cell that a spreadsheet shows as it is: a formula begins with an apostrophe."""
    if not isinstance(value, str) or not value.startswith(_FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value if value == value.strip() else f"'{value}"
