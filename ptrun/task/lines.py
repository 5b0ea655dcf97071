"""Text files as UTF-8 lines and JSON objects; every error has the file and the line number.

Python's JSON parser accepts more than JSON: NaN, repeated keys, unpaired surrogates, numbers that
round to infinity. All of these are errors here, before they cause failures elsewhere.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ptrun.errors import UserError
from ptrun.task.shown import shown

LONGEST = 2**25
"""The most bytes of a line."""


def json_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object on it; blank lines are skipped.

    Raises:
        UserError: the file is damaged, or a line is not UTF-8 or not one JSON object.
    """
    for where, text in text_lines(file):
        if text.strip():
            yield where, _parsed(where, text)


def json_file(file: Path) -> dict[str, Any]:
    """Return the one object that a file holds, on any number of lines.

    Raises:
        UserError: the file is damaged, not UTF-8, or not one JSON object.
    """
    return _parsed(str(file), "".join(text for _, text in text_lines(file)))


def json_objects(file: Path) -> list[dict[str, Any]]:
    """Return the objects of the one list that a file holds.

    Raises:
        UserError: the file is damaged, not UTF-8, or not one JSON list of objects.
    """
    data = _value(str(file), "".join(text for _, text in text_lines(file)))
    if not isinstance(data, list):
        raise UserError(f"{file}: expected a list [...], got {type(data).__name__}.")
    for number, one in enumerate(data):
        if not isinstance(one, dict):
            raise UserError(f"{file} entry {number}: expected an object {{...}}, got {shown(one)}.")
    return data


def text_lines(file: Path) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of each line of a plain or gzipped file.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    for number, line in enumerate(_byte_lines(file), start=1):
        where = f"{file}:{number}"
        yield where, _decoded(where, line, file)


def _byte_lines(file: Path) -> Iterator[bytes]:
    packed, number = file.suffix == ".gz", 0
    try:
        with (gzip.open if packed else open)(file, "rb") as lines:
            whole = iter(partial(lines.readline, LONGEST + 1), b"")
            for number, line in enumerate(whole, start=1):
                _check_length(f"{file}:{number}", line)
                yield line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
    except (OSError, EOFError, zlib.error) as error:
        reason = str(error) if packed else getattr(error, "strerror", error)
        advice = "compress it again: gzip FILE." if packed else "check the file."
        raise UserError(f"{file}:{number + 1}: cannot be read ({reason}); {advice}") from error


def _check_length(where: str, line: bytes) -> None:
    """Refuse a line that would fill the memory: a few megabytes of gzip hold gigabytes of zeros.

    Raises:
        UserError: it is too long.
    """
    if len(line) > LONGEST:
        raise UserError(
            f"{where}: a line of more than {LONGEST:,} bytes. Put each row on a line of its own, "
            "or divide its text."
        )


def _decoded(where: str, line: bytes, file: Path) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "CP1252"
        raise UserError(
            f"{where}: byte 0x{line[error.start]:02x} at {error.start + 1} is not readable as "
            f"UTF-8.\nSave the file as UTF-8, or type: iconv -f {encoding} "
            f"-t UTF-8 {file} > new{file.suffix}"
        ) from error


def _parsed(where: str, text: str) -> dict[str, Any]:
    data = _value(where, text)
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected an object {{...}}, got {type(data).__name__}.")
    return data


def _value(where: str, text: str) -> Any:
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite
        )
        if "\\u" in text and "\\ud" in text.lower():
            _refuse_surrogates(data)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON ({error.msg} at {_at(error)}).") from error
    except RecursionError as error:
        raise UserError(f"{where}: not readable as JSON (nested too deeply).") from error
    except ValueError as error:  # an integer of thousands of digits, or one of the hooks below
        raise UserError(f"{where}: not JSON ({str(error).split(';')[0][:120]}).") from error
    return data


def _at(error: json.JSONDecodeError) -> str:
    line = f"line {error.lineno}, " if "\n" in error.doc.rstrip() else ""
    return f"{line}column {error.colno}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {shown(max(keys, key=keys.count))} appears twice")
    return data


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:40]} is too large")
    return number


def _refuse_surrogates(data: Any) -> None:
    """Refuse text that cannot be written as UTF-8; a tokenizer would fail on it later."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("an unpaired surrogate, \\ud8.. without \\udc..") from error
