"""One value, one label: how a cell of the user's label column is read, and what is doubtful.

| a cell of the label column                           | is read as                          |
|------------------------------------------------------|-------------------------------------|
| ` pos `, `["pos"]`, a list's text `['pos']`          | `pos`                               |
| `1`, `1.0`, a whole number of parquet, JSON or Excel | `1`                                 |
| `True`, `TRUE`, true of parquet or JSON              | `true`                              |
| `nan`, `-`, `#N/A`, -1 beside numbers from 0         | a label, with a warning             |
| `a;b`, `["a", "b"]`                                  | refused (`ptrun.task.multilabel`)   |
"""

import ast
import json
import math
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from ptrun.config.writing import value_text
from ptrun.errors import UserError, names, shown
from ptrun.task.source import Row

NO_LABEL = {"nan", "null", "none", "n/a", "na", "n.a.", "nat", "-", "--", "---", "?", ".", "\\n"}
NO_LABEL |= {"<na>", "<null>", "(null)", "#n/a", "#value!", "#ref!", "#name?", "#div/0!", '""'}
"""Labels, in small letters, that programs write where there is none."""
_WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?")
_ITEM = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,\[\]"']+""", re.DOTALL)
_BETWEEN = re.compile(r"[\s,]*")
_BARE = re.compile(r"[\w.-]+")  # Hydra reads it as a label, also None and nan
_SEVERAL = re.compile(r"\s*[;|,]\s*")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+")
_INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff"
_MOST_LABELS = 20  # a column with more distinct values, in over half of its rows, has no labels
_LONG = 30  # characters of a label, on average
_COMMA = re.compile(r"-?\d+(,\d+)?")
_ENOUGH = 20  # rows of which a label should have more than one
_SKEWED = 0.9  # of the rows have one label


def label_text(row: Row, column: str) -> str:
    """Return a label as text, equal for all ways to write it."""
    raw = listed(row.data.get(column))
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    if isinstance(raw, list) and len(raw) > 1:
        raise UserError(
            f"{row.where}: label {shown(column)} is {shown(raw)}, several labels.\n"
            "If rows have several, type task.kind=multilabel."
        )
    if raw is None or raw == []:
        return ""
    finite = isinstance(raw, int | Decimal) or (isinstance(raw, float) and not math.isinf(raw))
    if not isinstance(raw, str) and not finite:
        raise row.wrong(column, "text or a number")
    return normal(raw)


def listed(raw: Any) -> Any:
    """Return the list that a text holds as JSON, Python or numpy writes it; Label Studio's too."""
    cell = bare(raw) if isinstance(raw, str) else ""
    if not (cell.startswith(("[", '{"choices"')) and cell.endswith(("]", "}"))):
        return raw
    try:
        labels = json.loads(cell)
    except (ValueError, RecursionError):
        try:  # numpy writes no commas, and Python would join its texts
            labels = [*map(_item, _ITEM.findall(cell[1:-1]))]
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            return raw
        labels = labels if _BETWEEN.fullmatch(_ITEM.sub("", cell[1:-1])) else None
    labels = labels.get("choices") if isinstance(labels, dict) else labels
    plain = isinstance(labels, list) and all(isinstance(n, str | int | float) for n in labels)
    return labels if plain else raw


def _item(text: str) -> Any:
    plain = text[0] in "'\"" and "\\" not in text
    return text[1:-1] if plain else ast.literal_eval(text)


def normal(raw: Any) -> str:
    """Return one text for equal labels: `1` for 1.0, `true` for True, one form of accents."""
    return _normal(str(raw))


@lru_cache(maxsize=10_000)
def _normal(text: str) -> str:
    text = unicodedata.normalize("NFC", bare(text))
    if text.lower() in ("true", "false"):
        return text.lower()
    number = _WHOLE.fullmatch(text)
    return text if number is None else "0" if not number[1].strip("-0") else number[1]


def doubts(column: str, counts: Mapping[str, int], *, by_accuracy: bool) -> Iterator[str]:
    """Yield a line a doubt: labels that may mean none, lone or similar ones, skewed ones."""
    total = sum(counts.values())
    for label in missing(counts):
        yield (
            f"{column} {shown(label)} ({counts[label]} rows) may mean that a row has no label; "
            f"{skipping([label])} leaves such rows out"
        )
    lone = [label for label, count in sorted(counts.items()) if count == 1]
    if lone and len(lone) < len(counts) and total > _ENOUGH:
        yield f"the labels {names(lone)} have one row each"
    keys = {label: float(label) if is_number(label) else label.casefold() for label in counts}
    alike = Counter(keys.values())
    if same := [label for label in sorted(counts) if alike[keys[label]] > 1]:
        yield f"the labels {names(same)} differ only in how they are written and are different"
    if by_accuracy and max(counts.values()) > _SKEWED * total:
        yield (
            f"{100 * max(counts.values()) / total:.0f}% of the rows have one label, so accuracy "
            "hides the others; task.metric=macro_f1 selects by all classes that dev has, and "
            "readout.class_weights=balanced weighs them equally in the loss"
        )


def missing(counts: Mapping[str, int]) -> list[str]:
    """Return the labels that may mean that a row has none.

    -1 is one beside numbers from 0 or beside names, but not beside 1 alone or other negatives.
    """
    absent = [label for label in counts if label.lower() in NO_LABEL]
    numbers = {float(label) for label in counts if is_number(label)} - {-1, -100}
    signed = numbers == {1} or min(numbers, default=0) < 0
    return absent + [label for label in ("-1", "-100") if label in counts and not signed]


def skipping(labels: Sequence[str]) -> str:
    """Return `task.skip=[...]` as one types it in a shell."""
    texts = (n if _BARE.fullmatch(n) else value_text("task.skip", n) for n in labels)
    return shlex.quote(f"task.skip=[{','.join(texts)}]")


def bare(text: str) -> str:
    """Return a text without spaces and invisible characters around it."""
    return text.strip().strip(_INVISIBLE).strip()


def is_number(text: str) -> bool:
    """Return whether a text is a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def several(counts: Mapping[str, int]) -> str | None:
    """Return a value that lists several of the labels, if some do.

    A part of such a value is a value itself, or all its parts are parts of others too: `a;b`
    beside `a`, or beside `b;c` and `c;a`. A number such as `1,000` is one value.
    """
    divided = {value: [part for part in _SEVERAL.split(value) if part] for value in counts}
    lists = {value: parts for value, parts in divided.items() if len(parts) > 1}
    uses = Counter(part for parts in lists.values() for part in set(parts))
    single = set(counts) - lists.keys()
    shared = [v for v, parts in lists.items() if all(p in single or uses[p] > 1 for p in parts)]
    beside = [v for v, parts in lists.items() if single & {*parts} and not _THOUSANDS.fullmatch(v)]
    return shared[0] if len(shared) > 1 else beside[0] if beside else None


def check_labels(file: str, column: str, columns: Sequence[str], counts: Mapping[str, int]) -> None:
    """Refuse values of a column that are no labels, or several labels in a cell."""
    total = sum(counts.values())
    many, mostly = len(counts) > _MOST_LABELS, 2 * len(counts) > total
    numbers = sorted(map(float, counts)) if all(map(is_number, counts)) else []
    advice = (
        "Classification needs a few labels with many rows each. Name another column: "
        f"task.label=COLUMN, of {names(columns)}."
    )
    if len(counts) < 2:
        problem = f"only one value, {shown(next(iter(counts)))}."
    elif mostly and sum(map(len, counts)) > _LONG * len(counts):
        problem = f"{len(counts)} different values in {total} rows, too many to be labels."
        advice = f"Texts that a model is to write are task.answer={column}, not task.label."
    elif many and all(map(_COMMA.fullmatch, counts)) and any("," in text for text in counts):
        problem = f"numbers with a comma, as {next(iter(counts))}."
        advice = (
            "If they are decimals, write them with a point and type task.kind=regression. If they "
            "are several labels, type task.kind=multilabel."
        )
    elif cell := several(counts):
        problem = f"several labels in a cell, as in {shown(cell)}."
        advice = (
            "Type task.kind=multilabel if a row has several labels. If this is one label, write it "
            "without the separator."
        )
    elif many and not all(number.is_integer() for number in numbers):
        span = f"{numbers[0]:g} to {numbers[-1]:g}"
        problem = f"{len(counts)} different numbers, from {span}."
        advice = "For scores type task.kind=regression."
    elif mostly and many:
        problem = f"{len(counts)} different values in {total} rows, too many to be labels."
        advice += f" Texts that a model is to write are task.answer={column}."
    else:
        return
    raise UserError(f"{file}: column {shown(column)} has {problem}\n{advice}")
