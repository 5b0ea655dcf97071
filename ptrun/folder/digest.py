"""Digests of the files of a run: a file that was damaged or edited is noticed when it is read.

| file | where its digest is |
|---|---|
| `result.json`, `failure.json` | its key `digest`, over all other keys |
| each file beside a result | its key `files`; of tensors the digest in their header |
| a line of `metrics.jsonl` | its key `crc`, because a run that has not ended has no result |
| `state.safetensors`, `prompt.safetensors` | in the header, over tensors and header |

Files of older versions have none, and are read as they are.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.files import from_json, opened, opened_tensors

BESIDE = ("run.yaml", "metrics.jsonl", "predictions.jsonl", "study.jsonl", "*.safetensors")
"""The files whose digests a result holds."""
LONGEST = 4_000_000_000
"""Bytes of a journal, or of the predictions for millions of rows."""
_CRC = "crc"


def of_plain(content: Mapping[str, Any]) -> str:
    """Return the digest of plain data as it is read from JSON; the order of keys is free."""
    return of_text(text_of(content))


def text_of(content: Mapping[str, Any]) -> str:
    """Return plain data as the text that `of_text` reads."""
    return json.dumps(content, sort_keys=True)


def of_text(text: str) -> str:
    """Return the digest of a text: 32 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def of_file(file: Path) -> str:
    """Return the digest of the bytes of a file; of tensors, that in their header.

    Raises:
        OSError: it cannot be read.
        ValueError: its tensors are damaged.
    """
    if file.suffix == ".safetensors":  # whoever reads them checks it against the tensors
        with opened_tensors(file) as tensors:
            return unpacked(tensors.metadata()).get(DIGEST, "")
    with opened(file) as source:
        return hashlib.file_digest(source, "sha256").hexdigest()[:32]


def beside(folder: Path) -> dict[str, str]:
    """Return the digests of those files of a run folder that exist."""
    files = (file for pattern in BESIDE for file in sorted(folder.glob(pattern)))
    return {file.name: of_file(file) for file in files if file.is_file()}


def line(row: Mapping[str, Any]) -> str:
    """Return a row of a journal as one line of JSON with its checksum."""
    checked = {**row, _CRC: _crc(row)}
    return json.dumps(checked, ensure_ascii=False) + "\n"


def row(text: str) -> dict[str, Any]:
    """Return the row of a line, without its checksum.

    Raises:
        ValueError: the line is damaged.
    """
    content = from_json(text)
    if not isinstance(content, dict):
        raise ValueError("not an object")
    if not is_count(content.get("step", 0)):
        raise ValueError("its step is no number")
    name, value = content.popitem() if content else (_CRC, None)
    if value == _crc(content) and name == _CRC:
        return content
    if name == _CRC or value == _crc(content):  # then the name is damaged
        raise ValueError("its checksum is another")
    return {**content, name: value}


def is_count(value: Any) -> bool:
    """Return whether a value of a row is a number of steps."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    """Return whether a value of a row is a number that can be printed."""
    return type(value) in (int, float) and abs(value) < 10**300


def _crc(row: Mapping[str, Any]) -> str:
    text = json.dumps(dict(row), ensure_ascii=False)
    return f"{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


# The header of prompt and state files: one key, because safetensors orders several at random.
#
# Equal tensors and headers are then equal bytes.

PROMPT = "prompt.safetensors"
"""The file of a run's trained prompt and head."""
_KEY = "ptrun"
DIGEST = "digest"
"""The key of the digest in a header."""


def packed(header: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    return {_KEY: json.dumps(dict(header), sort_keys=True)}


def combined(hashes: Mapping[str, str], header: Mapping[str, str]) -> str:
    """Return the digest of a file from the hashes of its tensors: 32 hexadecimal digits.

    The hash of a tensor is that of `DTYPE SHAPE`, as torch prints them, and its bytes.
    """
    text = json.dumps([dict(hashes), dict(header)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def unpacked(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the header of metadata; older versions of ptrun wrote it as it is.

    Raises:
        ValueError: it is damaged.
    """
    found = dict(metadata or {})
    header = dict(from_json(found[_KEY])) if _KEY in found else found
    if not all(isinstance(value, str) for value in header.values()):
        raise ValueError("a value of its header is no text")
    return header
