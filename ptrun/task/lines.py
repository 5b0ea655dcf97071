"""Text files as lines and JSON objects; every error has the file and the line number.

A file may be packed with gzip, bzip2, xz, zstandard or zip, whatever its name says. Its encoding is
UTF-8, or what a byte order mark says, or the one that is given. Lines end in LF or CRLF, or all in
CR. Python's JSON parser accepts more than JSON: NaN, repeated keys, unpaired surrogates, numbers
that round to infinity. All of these are errors here, before they cause failures elsewhere.
"""

import codecs
import io
import json
import lzma
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

from ptrun.errors import UserError, names, shown

LONGEST = 2**25
"""The most bytes of a line."""
ENCODING: ContextVar[str | None] = ContextVar("encoding", default=None)
"""The encoding of all texts that an import reads, if its user typed one."""
_COMMON = ("gb18030", "shift_jis", "cp1252")
_START = 2**16  # bytes in which the form of a file is looked for
_RATIO, _SMALL = 1000, 2**28  # a packed file may grow so many times, or to so many bytes
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd", ".zip": "zip"}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DAMAGED = (OSError, EOFError, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
_UNSEEN = re.compile(r"/$|(^|/)(\.|__MACOSX/)")  # in a zip: folders, and what a Mac adds
_BETWEEN = re.compile(r"[\s,]*")
_ABOUT = {"version", "name", "title", "description", "license"}  # texts beside a list of rows


def unpacked_name(file: Path) -> Path:
    """Return the name of a file without the suffix of its packing."""
    return Path(file.stem if file.suffix.lower() in _SUFFIXES else file.name)


def packing(file: Path) -> str | None:
    """Return how a file is packed, by its first bytes."""
    with file.open("rb") as opened:
        start = opened.read(6)
    kind = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    named = _SUFFIXES.get(file.suffix.lower())
    if start and named and named != kind:
        raise UserError(f"{file}: not a {named} file, though its name says so.")
    return kind


@contextmanager
def _unpacked(file: Path) -> Iterator[IO[bytes]]:
    """Open the bytes of a file, packed or not."""
    kind = packing(file)
    if kind == "zip":
        with zipfile.ZipFile(file) as archive:
            inside = [name for name in archive.namelist() if not _UNSEEN.search(name)]
            if len(inside) != 1:
                raise UserError(
                    f"{file}: a zip file of {names(inside) or 'no file'}; unpack it and name one."
                )
            with archive.open(inside[0]) as opened:
                yield opened
    elif kind in ("gzip", "bz2", "zstd"):
        import pyarrow  # faster than gzip, which needs seconds for a file of many empty members

        with io.BufferedReader(pyarrow.input_stream(str(file), compression=kind)) as opened:
            yield opened
    else:
        with lzma.open(file) if kind == "xz" else file.open("rb") as opened:
            yield opened


def start_of(file: Path) -> bytes:
    """Return the first bytes of what a file holds, unpacked."""
    try:
        with _unpacked(file) as opened:
            return opened.read(_START)
    except _DAMAGED as error:
        raise _damaged(file, 1, error) from error


def encoding_of(start: bytes) -> str:
    """Return the encoding that a byte order mark says, or UTF-8."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8")


def top_of(file: Path, encoding: str | None = None) -> str:
    """Return the first lines of a file; what is no text in them is left out."""
    start = start_of(file)
    encoding = encoding or ENCODING.get() or encoding_of(start)
    return start.decode(encoding, errors="ignore").lstrip("\ufeff")


def text_lines(file: Path, encoding: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of each line; None takes the encoding from the file."""
    start = start_of(file)
    encoding = encoding or ENCODING.get() or encoding_of(start)
    top = top_of(file, encoding)
    end = "\r" if "\n" not in top and "\r" in top.rstrip("\r") else "\n"  # as on a classic Mac
    number, letters, most = 0, 0, most_bytes(file)
    try:
        with _unpacked(file) as opened:
            text = io.TextIOWrapper(cast(Any, opened), encoding, "surrogateescape", newline=end)
            lines = iter(partial(text.readline, LONGEST + 1), "")
            for number, line in enumerate(lines, start=1):
                letters += len(line)
                if len(line) > LONGEST:
                    raise UserError(
                        f"{file}:{number}: a line of more than {LONGEST:,} bytes. Put each row on "
                        'a line of its own (pandas: to_json(orient="records", lines=True)), or '
                        "divide its text."
                    )
                if letters > most:
                    raise grown(file)
                line.encode()  # fails at a byte that was no text
                yield f"{file}:{number}", line.lstrip("\ufeff") if number == 1 else line
    except UnicodeEncodeError as error:
        raise _undecoded(f"{file}:{number}", encoding, error, start) from error
    except UnicodeError as error:
        name = encoding.upper()
        raise UserError(f"{file}:{number + 1}: not readable as {name} ({error}).") from error
    except _DAMAGED as error:
        raise _damaged(file, number + 1, error) from error


def _damaged(file: Path, number: int, error: Exception) -> UserError:
    packed = file.suffix.lower() in _SUFFIXES
    reason = str(error) if packed else getattr(error, "strerror", None) or error
    advice = "pack it again." if packed else "check the file."
    return UserError(f"{file}:{number}: cannot be read ({reason}); {advice}")


def grown(file: Path) -> UserError:
    """Return the refusal of a packed file that grows too much."""
    return UserError(
        f"{file}: it unpacks to more than {_RATIO:,} times its size; unpack it yourself if you "
        "trust it."
    )


def most_bytes(file: Path) -> int:
    """Return to how many bytes a packed file may grow."""
    return max(_SMALL, _RATIO * file.stat().st_size)


def _undecoded(where: str, encoding: str, error: UnicodeEncodeError, start: bytes) -> UserError:
    """Return the refusal of a line that is no text, with what it says in other encodings."""
    content = error.object.encode(encoding, "surrogateescape")
    at = len(error.object[: error.start].encode(encoding))
    texts: dict[str, str] = {}  # the encoding of each reading; a common one replaces a rare one
    for other in _COMMON:
        with suppress(UnicodeError):
            start[: start.rfind(b"\n") + 1].decode(other)
            texts[content.decode(other).strip()] = other
    listed = " or ".join(f"{name} if it says {shown(text[:40])}" for text, name in texts.items())
    return UserError(
        f"{where}: byte 0x{content[at]:02x} at {at + 1} is not readable as {encoding.upper()}.\n"
        "Save the file as UTF-8, or give its encoding (task=csv: task.encoding=..., ptrun predict "
        f"and import: --encoding ...): {listed or 'as Python names it'}."
    )


def json_lines(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object on it; blank lines are skipped."""
    for where, text in text_lines(file, encoding):
        if text.strip():
            yield where, _object(where, _parsed(where, text)[0])


def json_records(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file and their places.

    It holds one object a line, or a list of objects, or objects one after another, each on any
    number of lines; the last two are read at once.
    """
    top = next((text.strip() for _, text in text_lines(file, encoding) if text.strip()), "")
    if not (top.startswith("[") or _is_cut(top)):
        yield from json_lines(file, encoding)
        return
    text = "".join(line for _, line in text_lines(file, encoding))
    at, begin, line, row = 0, 0, 1, 0
    while (at := cast("re.Match[str]", _BETWEEN.match(text, at)).end()) < len(text):
        line += text.count("\n", begin, at)
        begin = at
        content, at = _parsed(str(file), text, at)
        is_list = isinstance(content, list) and not _is_pair(content)
        for data in content if is_list else [content]:
            row += 1
            place = f"{file} row {row}" if is_list else f"{file}:{line}"
            yield place, _object(place, data)


def _is_cut(line: str) -> bool:
    """Return whether the JSON of a line goes on below it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(line)
    except (ValueError, RecursionError):
        return False
    return False


def json_rows(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a table of JSON and their places.

    They are the objects of `json_records`, or the parts of one object that holds them all: a list
    of objects, or what pandas writes with `orient=` table, split, index or columns.
    """
    records = json_records(file, encoding)
    top = list(islice(records, 2))
    rows = _inside(file, top[0][1]) if len(top) == 1 else None
    if rows is None:
        yield from chain(top, records)
    else:
        yield from ((f"{file} row {n}", row) for n, row in enumerate(rows, start=1))


_TURN = ({"role", "content"}, {"role", "tool_calls"}, {"from", "value"})  # keys of a turn


def _inside(file: Path, data: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows that one object holds, or None if it is a row."""
    if any(isinstance(value, str) and key not in _ABOUT for key, value in data.items()):
        return None
    # 1) a list of objects; the turns of a conversation are a cell
    lists = {
        key: value
        for key, value in data.items()
        if isinstance(value, list) and value and all(isinstance(row, dict) for row in value)
    }
    if any(any(keys <= row.keys() for keys in _TURN) for rows in lists.values() for row in rows):
        return None
    if len(lists) > 1:
        raise UserError(f"{file}: one object with lists {names(lists)}; save each as a file.")
    if lists:
        return next(iter(lists.values()))
    # 2) pandas' orient=split
    columns, cells = data.get("columns"), data.get("data")
    if isinstance(columns, list) and isinstance(cells, list):
        return [dict(zip(map(str, columns), row, strict=False)) for row in cells]
    # 3) orient=index: rows by name; or orient=columns: columns, each of them cells by row
    parts = list(data.values())
    if not parts or not all(isinstance(part, dict) and part for part in parts):
        return None
    numbers, within = (all(map(str.isdecimal, keys)) for keys in (data, parts[0]))
    more_rows = len(data) < len(parts[0]) or (within and len(data) == len(parts[0]))
    is_columns = within if numbers != within else more_rows
    if not is_columns or len({tuple(part) for part in parts}) > 1:
        return parts
    return [{name: part[row] for name, part in data.items()} for row in parts[0]]


def json_file(file: Path) -> dict[str, Any]:
    """Return the one object that a file holds, on any number of lines."""
    text = "".join(line for _, line in text_lines(file))
    return _object(str(file), _parsed(str(file), text)[0])


def _is_pair(data: Any) -> bool:
    """Return whether a value is a text and an object, as a row of spaCy is."""
    return isinstance(data, list) and [*map(type, data)] == [str, dict]


def _object(where: str, data: Any) -> dict[str, Any]:
    if _is_pair(data):
        return {"text": data[0], **data[1]}
    if not isinstance(data, dict):
        raise UserError(f"{where}: {shown(data)} is not an object {{...}}.")
    return data


def _parsed(where: str, text: str, at: int | None = None) -> tuple[Any, int]:
    """Return the value of a JSON text, or one that begins at a place in it, and where it ends."""
    try:
        data, end = (
            (_DECODER.decode(text), len(text)) if at is None else _DECODER.raw_decode(text, at)
        )
        if "\\u" in text and "\\ud" in text.lower():
            # a text that cannot be written as UTF-8; a tokenizer would fail on it later
            json.dumps(data, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc.rstrip() else ""
        raise UserError(
            f"{where}: not JSON ({error.msg} at {line}column {error.colno})."
        ) from error
    except UnicodeEncodeError as error:
        reason = "an unpaired surrogate, \\ud8.. without \\udc.."
        raise UserError(f"{where}: not JSON ({reason}).") from error
    except RecursionError as error:
        raise UserError(f"{where}: not readable as JSON (nested too deeply).") from error
    except ValueError as error:  # an integer of thousands of digits, or one of the hooks below
        raise UserError(f"{where}: not JSON ({str(error).split(';')[0][:120]}).") from error
    return data, end


def _keyed(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {shown(max(keys, key=keys.count))} appears twice")
    return data


def _finite(digits: str) -> float:
    """Return a number; refuse NaN, Infinity, and what rounds to infinity."""
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{digits[:40]} is not a JSON number, or too large; write null")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_keyed, parse_constant=_finite, parse_float=_finite)
