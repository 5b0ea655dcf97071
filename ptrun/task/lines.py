"""Text files as lines and JSON objects; every error has the file and the line number.

A file may be packed with gzip, bzip2, xz, zstandard or zip, whatever its name says. Its encoding is
UTF-8, or what a byte order mark says, or the one that is given. Lines end in LF or CRLF, or all in
CR. Python's JSON parser accepts more than JSON: NaN, repeated keys, unpaired surrogates, numbers
that round to infinity. All of these are errors here, before they cause failures elsewhere.
"""

import bz2
import codecs
import gzip
import io
import json
import lzma
import math
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, cast

from ptrun.errors import UserError, names, shown

LONGEST = 2**25
"""The most bytes of a line."""
_COMMON = ("gb18030", "shift_jis", "cp1252")
_START = 2**16  # bytes in which the form of a file is looked for
_RATIO, _SMALL = 1000, 2**28  # a packed file may grow so many times, or to so many bytes
_PACKED = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"PK\x03\x04": "zip",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstandard", ".zip": "zip"}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
_UNSEEN = re.compile(r"/$|(^|/)(\.|__MACOSX/)")  # in a zip: folders, and what a Mac adds
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]')
"""A text of JSON, whose brackets do not count, or a bracket."""


def name_inside(file: Path) -> str:
    """Return the name of a file in small letters, without the suffix of its packing."""
    lower = file.name.lower()
    return next((lower.removesuffix(end) for end in _SUFFIXES if lower.endswith(end)), lower)


def unpacked_name(file: Path) -> Path:
    """Return the name of a file without the suffix of its packing."""
    return Path(file.name[: len(name_inside(file))])


def packing(file: Path) -> str | None:
    """Return how a file is packed, by its first bytes."""
    with file.open("rb") as opened:
        start = opened.read(6)
    kind = next((name for magic, name in _PACKED.items() if start.startswith(magic)), None)
    said = _SUFFIXES.get(file.suffix.lower())
    if start and said and said != kind:
        raise UserError(f"{file}: not a {said} file, though its name says so.")
    return kind


@contextmanager
def unpacked(file: Path) -> Iterator[IO[bytes]]:
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
    elif kind == "zstandard":
        import pyarrow

        with io.BufferedReader(pyarrow.input_stream(str(file), compression="zstd")) as opened:
            yield opened
    else:
        openers: dict[str | None, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
        with openers.get(kind, open)(file, "rb") as opened:
            yield opened


def start_of(file: Path) -> bytes:
    """Return the first bytes of what a file holds, unpacked."""
    try:
        with unpacked(file) as opened:
            return opened.read(_START)
    except _DAMAGED as error:
        raise _damaged(file, 1, error) from error


def encoding_of(start: bytes) -> str:
    """Return the encoding that a byte order mark says, or UTF-8."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8")


def text_lines(file: Path, encoding: str | None = None) -> Iterator[tuple[str, str]]:
    """Yield `file:line` and the text of each line; None takes the encoding from the file."""
    start = start_of(file)
    encoding = encoding or encoding_of(start)
    top = start.decode(encoding, errors="ignore")
    end = "\r" if "\n" not in top and "\r" in top.rstrip("\r") else "\n"  # as on a classic Mac
    number, letters, most = 0, 0, most_bytes(file)
    try:
        with unpacked(file) as opened:
            text = io.TextIOWrapper(cast(Any, opened), encoding, newline=end)
            lines = iter(partial(text.readline, LONGEST + 1), "")
            for number, line in enumerate(lines, start=1):
                letters += len(line)
                if len(line) > LONGEST:
                    raise _too_long(f"{file}:{number}")
                if letters > most:
                    raise grown(file)
                yield f"{file}:{number}", line.lstrip("\ufeff") if number == 1 else line
    except UnicodeError as error:
        raise _undecoded(file, encoding, number + 1, error) from error
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


def _too_long(where: str) -> UserError:
    """Return the refusal of a line that would fill the memory, as of zeros in a gzip."""
    return UserError(
        f"{where}: a line of more than {LONGEST:,} bytes. Put each row on a line of its own "
        '(pandas: to_json(orient="records", lines=True)), or divide its text.'
    )


def _undecoded(file: Path, encoding: str, number: int, error: UnicodeError) -> UserError:
    """Return the refusal of a line that is no text: the first that does not decode on its own."""
    name = encoding.upper()
    if not name.startswith(("UTF-16", "UTF_16", "UTF-32", "UTF_32")):
        with unpacked(file) as opened:
            for place, line in enumerate(opened, start=1):
                try:
                    line.decode(encoding)
                except UnicodeDecodeError as wrong:
                    return UserError(
                        f"{file}:{place}: byte 0x{line[wrong.start]:02x} at {wrong.start + 1} is "
                        f"not readable as {name}.\n{_other_encodings(file, line)}"
                    )
    return UserError(f"{file}:{number}: not readable as {name} ({error}).")


def _other_encodings(file: Path, line: bytes) -> str:
    """Return advice: encodings that decode the start of a file, with what a line says in each."""
    start = start_of(file)
    texts: dict[str, str] = {}  # the encoding of each reading; a common one replaces a rare one
    for encoding in _COMMON:
        with suppress(UnicodeError):
            start[: start.rfind(b"\n") + 1].decode(encoding)
            texts[line.decode(encoding).strip()] = encoding
    listed = " or ".join(f"{name} if it says {shown(text[:40])}" for text, name in texts.items())
    return (
        "Save the file as UTF-8, or give its encoding (task=csv: task.encoding=..., ptrun predict: "
        f"--encoding ...): {listed or 'as Python names it'}."
    )


def json_lines(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield `file:line` and the object on it; blank lines are skipped."""
    for where, text in text_lines(file, encoding):
        if text.strip():
            yield where, _parsed(where, text)


def json_records(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the objects of a file and the lines where they start.

    It holds one object a line, or a list of objects, or objects one after another, each on any
    number of lines.
    """
    lines = text_lines(file, encoding)
    top = next(((where, text) for where, text in lines if text.strip()), None)
    if top is None:
        return
    every = chain([top], lines)
    if top[1].lstrip().startswith("[") or not _is_value(top[1]):
        last = ""
        for number, (where, text) in enumerate(_objects(file, every), start=1):
            place, last = f"{where} row {number}" if where == last else where, where
            yield place, _parsed(place, text)
        return
    yield from ((where, _parsed(where, text)) for where, text in every if text.strip())


_ABOUT = {"version", "name", "title", "description", "license"}  # texts beside such a list


def json_rows(file: Path, encoding: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a table of JSON and their places.

    They are the objects of `json_records`, or the parts of one object that holds them all: a list
    of objects, or what pandas writes with `orient=` table, split, index or columns.
    """
    records = json_records(file, encoding)
    top = list(islice(records, 2))
    inside = _inside(file, top[0][1]) if len(top) == 1 else None
    if inside is None:
        yield from chain(top, records)
    else:
        yield from ((f"{file} row {n}", row) for n, row in enumerate(inside, start=1))


def _inside(file: Path, data: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return the rows that one object holds, or None if it is a row."""
    if any(isinstance(value, str) and key not in _ABOUT for key, value in data.items()):
        return None
    # 1) a list of objects; the turns of a conversation are a cell
    lists = {
        key: value
        for key, value in data.items()
        if isinstance(value, list)
        and value
        and all(isinstance(row, dict) for row in value)
        and not all({"role", "content"} <= row.keys() for row in value)
    }
    if len(lists) > 1:
        raise UserError(f"{file}: one object with lists {names(lists)}; save each as a file.")
    if lists:
        return [*next(iter(lists.values()))]
    # 2) pandas' orient=split
    columns, cells = data.get("columns"), data.get("data")
    if isinstance(columns, list) and isinstance(cells, list):
        return [dict(zip(map(str, columns), row, strict=False)) for row in cells]
    # 3) orient=index: rows by name; or orient=columns: columns, each of them cells by row
    parts = list(data.values())
    if not parts or not all(isinstance(part, dict) and part for part in parts):
        return None
    if len({tuple(part) for part in parts}) > 1 or not _are_columns(data, parts[0]):
        return parts
    return [{name: part[row] for name, part in data.items()} for row in parts[0]]


def _are_columns(outer: dict[str, Any], inner: dict[str, Any]) -> bool:
    """Return whether the outer names are columns: rows have numbers, or are more than columns."""
    numbers, within = (all(map(str.isdecimal, names_of)) for names_of in (outer, inner))
    if numbers != within:
        return within
    return len(outer) < len(inner) or (within and len(outer) == len(inner))


def _is_value(text: str) -> bool:
    """Return whether a line is JSON on its own."""
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.pos < len(text.rstrip())  # wrong within the line, not cut at its end
    except (ValueError, RecursionError):
        return True
    return True


def _objects(file: Path, lines: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the texts of the objects in a list, or one after another, by matching brackets."""
    depth, base, begun, held = 0, 0, "", ""
    for number, (where, text) in enumerate(lines):
        if number == 0 and text.lstrip().startswith("["):
            base = depth = 1
            text = text.replace("[", " ", 1)
        last = 0
        for match in _BRACKETS.finditer(text):
            if match[0] in ("{", "["):
                depth += 1
                if depth == base + 1:
                    begun, last, held = where, match.start(), ""
            elif match[0] in ("}", "]"):
                depth -= 1
                if depth == base:
                    yield begun, held + text[last : match.end()]
                    begun, held, last = "", "", match.end()
        if begun:
            held += text[last:]
            if len(held) > LONGEST:
                raise _too_long(begun)
        elif text[last:].strip(" \t\r\n,]"):
            raise UserError(f"{where}: {shown(text[last:].strip())} is not an object {{...}}.")
    if begun:
        raise UserError(f"{begun}: not JSON (the object that starts here has no end).")


def json_file(file: Path) -> dict[str, Any]:
    """Return the one object that a file holds, on any number of lines."""
    return _parsed(str(file), "".join(text for _, text in text_lines(file)))


def _parsed(where: str, text: str) -> dict[str, Any]:
    try:
        data = json.loads(
            text, object_pairs_hook=_object, parse_constant=_finite, parse_float=_finite
        )
        if "\\u" in text and "\\ud" in text.lower():
            _refuse_surrogates(data)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if "\n" in error.doc.rstrip() else ""
        raise UserError(
            f"{where}: not JSON ({error.msg} at {line}column {error.colno})."
        ) from error
    except RecursionError as error:
        raise UserError(f"{where}: not readable as JSON (nested too deeply).") from error
    except ValueError as error:  # an integer of thousands of digits, or one of the hooks below
        raise UserError(f"{where}: not JSON ({str(error).split(';')[0][:120]}).") from error
    if not isinstance(data, dict):
        raise UserError(f"{where}: expected an object {{...}}, got {type(data).__name__}.")
    return data


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
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


def _refuse_surrogates(data: Any) -> None:
    """Refuse text that cannot be written as UTF-8; a tokenizer would fail on it later."""
    try:
        json.dumps(data, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("an unpaired surrogate, \\ud8.. without \\udc..") from error
