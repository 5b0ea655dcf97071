"""The rows of a prediction: the user's questions in, and answers out as text or files."""

import csv
import io
import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ptrun.errors import UserError, names, near, plain_json, shown, warn_once
from ptrun.files import drafted, safe
from ptrun.task.dataset import Task
from ptrun.task.source import Row
from ptrun.types import Example

# The user's rows as checked examples of the run's task, from a file or from Python.

_ID = "id"
STDIN = "-"
"""The name of standard input."""


@dataclass(frozen=True)
class Question:
    """A row as an example, the id of its prediction, its number from 1, and all its fields."""

    id: int | str
    example: Example
    number: int
    data: Mapping[str, Any]


def given(
    data: Iterable[Mapping[str, Any]], task: Task, parts: Collection[str], start: int = 1
) -> Iterator[Question]:
    """Yield each row of Python data in order, as `question`; `start` is the number of the first."""
    form = "{" + ", ".join(f"{field!r}: ..." for field in task.reads) + "}"
    for number, fields in enumerate(data, start):
        if not isinstance(fields, Mapping):
            raise UserError(f"row {number}: {shown(fields)}; expected a dict such as {form}.")
        yield question(Row(f"row {number}", fields), number, task, parts)


@contextmanager
def readable(file: Path) -> Iterator[Path]:
    """Yield a file that can be read twice: standard input, as JSON lines, is copied first.

    Errors name standard input in place of the copy.
    """
    if str(file) != STDIN:
        yield file
        return
    with TemporaryDirectory(prefix="ptrun-") as folder:
        copy = Path(folder, "input.jsonl")
        with copy.open("wb") as opened:
            shutil.copyfileobj(sys.stdin.buffer, opened)
        try:
            yield copy
        except UserError as error:
            raise UserError(str(error).replace(str(copy), "standard input")) from error


def question(
    row: Row, number: int, task: Task, parts: Collection[str], *, cells: bool = False
) -> Question:
    """Return a row as a checked example; its number from 1 names it unless it has an id.

    `parts` are the relations with their own prompt, or only "". In `cells`, those of a table of
    text, an empty one has no value.
    """
    for field in task.reads:
        if field in task.optional and (field in row.data or not near(field, row.data)):
            if field not in row.data:
                warn_once(f"rows without {shown(field)} are answered as if it were empty")
            continue
        if field not in row.data:
            raise UserError(
                f"{row.where}: no field {shown(field)}{near(field, row.data)}\n"
                f"The run reads: {names(task.reads)}. Found: {names(row.data)}"
            )
        value = row.data[field]
        if value is None or (cells and not str(value).strip()):
            raise UserError(
                f"{row.where}: field {shown(field)} is {'empty' if cells else 'null'}; fill it in "
                "or delete the row."
            )
    example = task.unlabelled(str(number), row)
    if "" not in parts and example.group not in parts:
        raise UserError(
            f"{row.where}: relation {shown(example.group)} was not learned; the run has "
            f"{names(sorted(parts))}."
        )
    name = None if _ID in task.reads else row.data.get(_ID)
    if name is None or name == "" or name != name:  # pandas' NaN
        name = number
    if isinstance(name, float) and name.is_integer():  # pandas, where a row has no id
        name = int(name)
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise UserError(f"{row.where}: id is {shown(name)}; expected a text, a number, or no id.")
    return Question(name, example, number, row.data)


# The output of predictions: standard output, or a file that appears only when it is complete.
#
# The suffix of the file selects the form: `.csv`, `.tsv`, else JSON lines.

Answered = Sequence[tuple[Question, dict[str, Any]]]


class JsonLines:
    """One JSON object a line; the base of other forms."""

    def lines(self, answered: Answered) -> Iterator[str]:
        """Yield the lines of some rows and their answers."""
        # a terminal would obey control characters that JSON lets pass
        return (plain_json(json.dumps(answer, ensure_ascii=False)) for _, answer in answered)

    def end(self) -> Iterator[str]:
        """Yield the lines that can be written after the last answer only."""
        return iter(())


class Delimited(JsonLines):
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

    def _cells(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Return an answer with one value a column."""
        cells = {key: value for key, value in answer.items() if key != "top"}
        if isinstance(cells.get("probabilities"), dict):
            shares = cells.pop("probabilities")
            cells |= {f"probability_{label}": share for label, share in shares.items()}
        best = answer.get("top", [])
        for place in range(self.top or 0):
            label = best[place] if place < len(best) else {}
            cells[f"top_{place + 1}"] = label.get("prediction", "")
            cells[f"top_{place + 1}_probability"] = label.get("probability", "")
        return cells

    def _line(self, cells: Sequence[Any]) -> str:
        plain = [json.dumps(c, ensure_ascii=False) if isinstance(c, list) else c for c in cells]
        text = io.StringIO()
        row = plain if self.raw else [*map(safe, plain)]
        csv.writer(text, delimiter=self.separator, lineterminator="").writerow(row)
        return text.getvalue()


def form_of(output: Path | None, top: int | None, *, raw: bool = False) -> JsonLines:
    """Return the form of a file, by its suffix."""
    suffix = "" if output is None else output.suffix.lower()
    separator = {".csv": ",", ".tsv": "\t"}.get(suffix)
    return JsonLines() if separator is None else Delimited(separator, top, raw=raw)


@contextmanager
def lines_to(file: Path | None) -> Iterator[Callable[[Iterable[str]], None]]:
    """Yield what writes lines. A file is new, and gets its name after the last line."""
    if file is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")

        def write(lines: Iterable[str]) -> None:
            sys.stdout.writelines(f"{line}\n" for line in lines)
            sys.stdout.flush()

        yield write
        return
    _check_new(file)
    with drafted(file) as target:
        yield lambda lines: target.writelines(f"{line}\n".encode() for line in lines)
        _check_new(file)


def _check_new(file: Path) -> None:
    if file.exists():
        raise UserError(f"{file}: the file exists. Type another name, or remove it.")
    if not file.parent.is_dir():
        raise UserError(f"{file}: the folder {file.parent} is missing. Make it first.")
