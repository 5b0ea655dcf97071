"""Rows in numbered files of one folder; each file is complete, so an interrupted job resumes.

The first line of a file is its head: the number of corpus lines that the file covers, the number
of rows of each split, and the hash of both and of the rows. A damaged file counts as missing, and
is made again.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from ptrun.files import read_bytes, write_text
from ptrun.stored import read_once
from ptrun.task.lines import json_lines

_LOG = logging.getLogger(__name__)
_DIGEST = "digest"
_LARGEST = 2**31  # bytes of a file


@dataclass(frozen=True)
class Shards:
    """The files of a folder, from number 0 to the first that is missing or damaged."""

    folder: Path

    def heads(self) -> Iterator[dict[str, Any]]:
        """Yield the head of each file."""
        for file in self._files():
            yield next(json_lines(file))[1]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows."""
        for file in self._files():
            yield from (row for _, row in list(json_lines(file))[1:])

    def write(self, number: int, lines: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write a file atomically; `lines` corpus lines gave the `rows`.

        Raises:
            OSError: it cannot be written, as on a full disk; no draft is left.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._file(number)
        head = {"lines": lines, "kept": Counter(row["split"] for row in rows)}
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        first = json.dumps({**head, _DIGEST: _digest(head, text.encode())})
        write_text(file, f"{first}\n{text}")

    def _files(self) -> Iterator[Path]:
        return takewhile(_is_intact, map(self._file, count()))

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06}.jsonl"


@read_once
def _is_intact(file: Path) -> bool:
    """Return whether a file is there with the hash of its head; older versions wrote none."""
    first, _sep, text = read_bytes(file, _LARGEST).partition(b"\n")
    if _fits(first, text):
        return True
    _LOG.warning("%s: damaged; it is made again", file)
    return False


def _fits(first: bytes, rows: bytes) -> bool:
    try:
        head = dict(json.loads(first))
    except (ValueError, TypeError):
        return False
    return head.pop(_DIGEST, None) in (None, _digest(head, rows)) and "lines" in head


def _digest(head: dict[str, Any], rows: bytes) -> str:
    """Return the hash of the head of a file and of its rows."""
    hashed = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    hashed.update(rows)
    return hashed.hexdigest()[:32]
