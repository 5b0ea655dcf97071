"""Digests of the files of a run: a file that was damaged or edited is noticed when it is read.

| file | where its digest is |
|---|---|
| `result.json`, `failure.json`, a line of `metrics.jsonl` | its key `digest`, over all other keys |
| each file beside a result | its key `files`; of tensors the digest in their header |
| `state.safetensors`, `prompt.safetensors` | in the header, over tensors and header |

A run that has not ended has no result, so its state and its journal have their own.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.files import from_json, opened, opened_tensors

BESIDE = ("run.yaml", "metrics.jsonl", "predictions.jsonl", "study.jsonl", "*.safetensors")
"""The files whose digests a result holds."""
LONGEST = 4_000_000_000
"""Bytes of a journal, or of the predictions for millions of rows."""
DIGEST = "digest"
"""The key of the digest in plain data and in a header."""
DAMAGES = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading plain data of another form raises."""
AGAIN = "Type the command of its run again with rerun=true."


@contextmanager
def damaged(file: object, about: str = "", advice: str = AGAIN) -> Iterator[None]:
    """Raise an error of `DAMAGES` as a `UserError` that names the file, or a place in it."""
    try:
        yield
    except DAMAGES as error:
        raise UserError(f"{file}: damaged ({about or error}). {advice}") from error


def of_plain(content: Any) -> str:
    """Return the digest of plain data as it is read from JSON: 32 hexadecimal digits.

    The order of keys is free.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def of_file(file: Path) -> str:
    """Return the digest of the bytes of a file; of tensors, that in their header."""
    if file.suffix == ".safetensors":  # whoever reads them checks it against the tensors
        with opened_tensors(file) as tensors:
            return unpacked(tensors.metadata()).get(DIGEST, "")
    with opened(file) as source:
        return hashlib.file_digest(source, "sha256").hexdigest()[:32]


def beside(folder: Path) -> dict[str, str]:
    """Return the digests of those files of a run folder that exist."""
    files = (file for pattern in BESIDE for file in sorted(folder.glob(pattern)))
    return {file.name: of_file(file) for file in files if file.is_file()}


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return plain data with its digest as the last key, in place of an older one."""
    plain = json.loads(json.dumps({k: value for k, value in content.items() if k != DIGEST}))
    return {**plain, DIGEST: of_plain(plain)}


def unsealed(content: Any) -> dict[str, Any]:
    """Return plain data without its digest; a ValueError if it is no object, or edited."""
    if not isinstance(content, dict):
        raise ValueError("not an object")
    if content.pop(DIGEST, None) != of_plain(content):
        raise ValueError("its digest is another")
    return content


def line(row: Mapping[str, Any]) -> str:
    """Return a row of a journal as one line of JSON with its digest."""
    return json.dumps(sealed(row), ensure_ascii=False) + "\n"


def row(text: str) -> dict[str, Any]:
    """Return the row of a line, without its digest; a damaged line is a ValueError."""
    content = unsealed(from_json(text))
    if not is_count(content.get("step", 0)):
        raise ValueError("its step is no number")
    return content


def is_count(value: Any) -> bool:
    """Return whether a value of a row is a number of steps."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    """Return whether a value of a row is a number that can be printed."""
    return type(value) in (int, float) and abs(value) < 10**300


# The header of prompt and state files: one key, because safetensors orders several at random.
#
# Equal tensors and headers are then equal bytes.

PROMPT = "prompt.safetensors"
"""The file of a run's trained prompt and head."""
_KEY = "ptrun"


def packed(header: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a safetensors file."""
    return {_KEY: json.dumps(dict(header), sort_keys=True)}


def combined(hashes: Mapping[str, str], header: Mapping[str, str]) -> str:
    """Return the digest of a file from the hashes of its tensors: 32 hexadecimal digits.

    The hash of a tensor is that of `DTYPE SHAPE`, as torch prints them, and its bytes.
    """
    return of_plain([dict(hashes), dict(header)])


def unpacked(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return the header of metadata; a damaged one is a ValueError."""
    header = dict(from_json((metadata or {}).get(_KEY, "{}")))
    if not all(isinstance(value, str) for value in header.values()):
        raise ValueError("a value of its header is no text")
    return header
