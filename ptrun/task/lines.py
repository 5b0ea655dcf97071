"""Text files as the user's editor shows them: UTF-8 lines and JSON objects, errors with a number.

Python's own JSON takes more than JSON: NaN, keys given twice, halves of characters, numbers that
round to infinity. All of these become one error here, before they can surface elsewhere.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from ptrun.errors import UserError
from ptrun.task.shown import shown


def json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object there; blank lines are left out.

    Raises:
        UserError: the file is damaged, or a line is not UTF-8 or not one JSON object.
    """
    for number, line in enumerate(byte_lines(file), start=1):
        where = f"{file}:{number}"
        text = decoded(where, line, file)
        if text.strip():
            yield where, parsed(where, text)


def byte_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a plain or gzipped file.

    Raises:
        UserError: it cannot be read.
    """
    opened = gzip.open if file.suffix == ".gz" else open
    number = 0
    try:
        with opened(file, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        reason = str(error) if file.suffix == ".gz" else getattr(error, "strerror", error)
        raise UserError(
            f"{file}:{number + 1}: cannot be read ({reason}); "
            f"{'pack it anew: gzip FILE.' if file.suffix == '.gz' else 'check the file.'}"
        ) from error


def decoded(where: str, line: bytes, file: Path) -> str:
    """Return a line as text.

    Raises:
        UserError: it is not UTF-8; says which byte, and what to type.
    """
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        wide = line[:2] in (b"\xff\xfe", b"\xfe\xff")
        raise UserError(
            f"{where}: byte 0x{line[error.start]:02x} at {error.start + 1} is not readable as "
            f"UTF-8.\nSave the file as UTF-8, or type: iconv -f {'UTF-16' if wide else 'CP1252'} "
            f"-t UTF-8 {file} > new{file.suffix}"
        ) from error


def parsed(where: str, text: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises:
        UserError: it is not JSON, not an object, or holds what no text or number is.
    """
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite
        )
        if "\\u" in text and "\\ud" in text.lower():
            _refuse_halves(data)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg} at column {error.colno}).") from error
    except RecursionError as error:
        raise UserError(f"{where}: not readable as JSON (lists in lists, too deep).") from error
    except ValueError as error:  # an integer of thousands of digits, or one of the hooks below
        raise UserError(f"{where}: not JSON ({str(error).split(';')[0][:120]}).") from error
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected an object {{...}}, got {type(data).__name__}.")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {shown(max(keys, key=keys.count))} stands twice")
    return data


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large")
    return number


def _refuse_halves(data: Any) -> None:
    """Refuse text that cannot be written as UTF-8; a tokenizer would fail on it later."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("half of a character, a \\ud8.. without its \\udc..") from error
