"""Rows in numbered files of one folder; each file is complete, so an interrupted job resumes.

The first line of a file is its head: the number of corpus lines that the file covers, and the
number of rows of each split.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from ptrun.task.lines import json_lines


@dataclass(frozen=True)
class Shards:
    """The files of a folder, from number 0 to the first missing number."""

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
        """Write a file atomically; `lines` corpus lines gave the `rows`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self._file(number)
        draft = file.with_name(f".{file.name}.{os.getpid()}")
        head = {"lines": lines, "kept": Counter(row["split"] for row in rows)}
        with draft.open("w", encoding="utf-8") as opened:
            opened.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in (head, *rows))
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)

    def _files(self) -> Iterator[Path]:
        return takewhile(Path.is_file, map(self._file, count()))

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06}.jsonl"
