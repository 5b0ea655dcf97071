"""The output of predictions: standard output, or a file that appears only when it is complete.

The suffix of the file selects the form: `.csv`, `.tsv`, else JSON lines.
"""

import csv
import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, TextIO

from ptrun.config.readable import plain_json
from ptrun.drawing.spreadsheet import safe
from ptrun.errors import UserError, named
from ptrun.files import created
from ptrun.predicting.questions import Question

Answered = Sequence[tuple[Question, dict[str, Any]]]


class Form(Protocol):
    """How answers become lines of text."""

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield the lines of some rows and their answers."""

    def end(self) -> Iterator[str]:
        """Yield the lines that can be written after the last answer only."""


class JsonLines:
    """One JSON object a line."""

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield a line for each answer."""
        return (_json(answer) for _, answer in answered)

    def end(self) -> Iterator[str]:
        """Yield nothing."""
        return iter(())


class Delimited:
    """A table: a header, then a row for each answer; lists are JSON in one cell.

    Args:
        separator: `,` or a tab.
        top: the number of likeliest labels, each with a column for itself and its probability.
        raw: write texts as they are that a spreadsheet would run as formulas.
    """

    def __init__(self, separator: str, top: int | None, *, raw: bool = False):
        self.separator, self.top, self.raw = separator, top, raw
        self.header: list[str] = []

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield a line for each answer, and the header before the first."""
        for _, answer in answered:
            cells = self._cells(answer)
            if not self.header:
                self.header = list(cells)
                yield self._line(self.header)
            if more := [name for name in cells if name not in self.header]:
                raise UserError(
                    f"answer {answer.get('id')} has {more[0]}, which the first answers have not; "
                    "type --output FILE.jsonl."
                )
            yield self._line([cells.get(name, "") for name in self.header])

    def end(self) -> Iterator[str]:
        """Yield nothing."""
        return iter(())

    def _cells(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer with one value a column."""
        cells = {key: value for key, value in answer.items() if key != "top"}
        if isinstance(cells.get("probabilities"), dict):
            shares = cells.pop("probabilities")
            cells |= {f"probability_{label}": share for label, share in shares.items()}
        best = answer.get("top", [])
        for place in range(self.top or 0):
            own = best[place] if place < len(best) else {}
            cells[f"top_{place + 1}"] = own.get("prediction", "")
            cells[f"top_{place + 1}_probability"] = own.get("probability", "")
        return cells

    def _line(self, cells: Sequence[Any]) -> str:
        plain = [json.dumps(c, ensure_ascii=False) if isinstance(c, list) else c for c in cells]
        text = io.StringIO()
        kept = plain if self.raw else [*map(safe, plain)]
        csv.writer(text, delimiter=self.separator, lineterminator="").writerow(kept)
        return text.getvalue()


def form_of(output: Path | None, top: int | None, *, raw: bool = False) -> Form:
    """Return the form of a file, by its suffix."""
    suffix = "" if output is None else output.suffix.lower()
    separator = {".csv": ",", ".tsv": "\t"}.get(suffix)
    return JsonLines() if separator is None else Delimited(separator, top, raw=raw)


class Lines:
    """A text output that flushes after each write."""

    def __init__(self, opened: TextIO, name: str):
        self._opened, self._name = opened, name

    def write(self, lines: Iterable[str]) -> None:
        """Write lines.

        Raises:
            UserError: the output cannot be written, as on a full disk.
            BrokenPipeError: the reader has closed the pipe.
        """
        try:
            self._opened.writelines(f"{line}\n" for line in lines)
            self._opened.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unwritable(self._name, error) from error


@contextmanager
def lines_to(file: Path | None) -> Iterator[Lines]:
    """Yield an output for lines. A file gets its name after the last line.

    Raises:
        UserError: the file exists, its folder is missing, or it cannot be written.
    """
    if file is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        yield Lines(sys.stdout, "standard output")
        return
    _check_new(file)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        opened = TextIOWrapper(created(draft), encoding="utf-8")
    except OSError as error:
        raise _unwritable(str(file), error) from error
    try:
        with named(file), opened:  # closing writes too
            yield Lines(opened, str(file))
            os.fsync(opened.fileno())
        _check_new(file)
        draft.replace(file)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def make(folder: Path) -> None:
    """Make a folder for output.

    Raises:
        UserError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(str(folder), error) from error


def _json(answer: dict[str, Any]) -> str:
    """Return an answer as JSON; a terminal would obey control characters that JSON lets pass."""
    return plain_json(json.dumps(answer, ensure_ascii=False))


def _check_new(file: Path) -> None:
    if file.exists():
        raise UserError(f"{file}: the file exists. Type another name, or remove it.")
    if not file.parent.is_dir():
        raise UserError(f"{file}: the folder {file.parent} is missing. Make it first.")


def _unwritable(name: str, error: OSError) -> UserError:
    return UserError(f"{name}: cannot be written ({error.strerror}).")
