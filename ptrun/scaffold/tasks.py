"""The files of a new task: its options, and its data, a sample or the user's own."""

import json
import keyword
import logging
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from string import Template
from typing import Any

import yaml

from ptrun.config.build import build
from ptrun.config.paths import options
from ptrun.errors import UserError, names, shown
from ptrun.pocket.tasks import rows as pocket_rows
from ptrun.task.label import label_text, missing
from ptrun.task.multilabel import NONE, labels_of
from ptrun.task.source import Row
from ptrun.task.table import table

_LOG = logging.getLogger(__name__)


# The files of a new method, task, backbone or cluster, made from the templates in this folder.

HERE = Path(__file__).parent
CONF, CODE = Path("ptrun_conf"), Path("ptrun_parts")
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def check_name(group: str, name: str) -> None:
    """Refuse a name that no file or class can have, or that an option has."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"{name!r} cannot be a name. Use small letters, digits and _, beginning with a letter, "
            f"such as ptrun new {group} my_{group}."
        )
    if (file := options(group).get(name)) is not None:
        raise UserError(f"{group}={name} exists: {file}. Choose another name.")


def part(group: str, name: str) -> dict[Path, str]:
    """Return the files of a new method, backbone or cluster, and their texts."""
    files = _option(group, name, group)
    return files | _code(name, group) if group == "method" else files


def _option(group: str, name: str, template: str, **facts: str) -> dict[Path, str]:
    """Return the YAML file of an option and its text."""
    text = (HERE / f"{template}.yaml").read_text("utf-8")
    text = text.replace("$common\n", (HERE / "task.yaml").read_text("utf-8"))
    filled = Template(text).substitute(name=name, **{"class": _class_name(name), **facts})
    return {CONF / group / f"{name}.yaml": filled}


def _code(name: str, example: str) -> dict[Path, str]:
    """Return the file of a class: the example of a method or a task under another name."""
    text = (HERE / f"example_{example}.py").read_text("utf-8")
    text = text.replace(f"Example{example.capitalize()}", _class_name(name))
    return {CODE / f"{name}.py": text}


def _class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_SAMPLE = {"train": 200, "validation": 50, "test": 50}
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_MOST_LABELS = 20
_WORDS = {"positive": "good", "negative": "bad"}
_WORDS |= {"entailment": "yes", "neutral": "and", "contradiction": "no"}
_PAIR = {"first": "sentence1", "second": "sentence2", "label": "label"}
_QA = {"question": "question", "context": "context", "answers": "answers"}
KINDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "classification": ("sentiment", {"text": "sentence", "label": "label"}),
    "multilabel": ("two_topics", {"text": "text", "labels": "topics"}),
    "pair": ("pairs", {"first": "premise", "second": "hypothesis", "label": "label"}),
    "similarity": ("similarity", _PAIR),
    "choice": (
        "choice",
        {"context": "article", "question": "question", "options": "options", "answer": "answer"},
    ),
    "tagging": ("ner", {"tokens": "tokens", "tags": "ner_tags"}),
    "tags": ("words", {"tokens": "tokens", "tags": "word_tags"}),
    "extraction": ("qa", _QA),
    "generation": ("writing", {"text": "facts", "answer": "sentences"}),
    "multispan": ("multispan", _QA),
    "own": ("sentiment", {"text": "sentence", "stars": "label"}),
}
"""Of each kind the pocket task of its sample, and its fields with their names there."""


def task(
    name: str, kind: str, data: Path | None = None, columns: Sequence[str] | None = None
) -> dict[Path, str]:
    """Return the files of a new task.

    Args:
        name: its name.
        kind: one of `KINDS`; `own` has a class of its own.
        data: a table of the user's; None for a sample.
        columns: its columns, in the order of the kind's fields; None if they have those names.
    """
    splits = _sample(kind) if data is None else {"train": _own(kind, data, columns)}
    placed = {part: split if split in splits else None for part, split in _SPLITS.items()}
    every = [row for rows in splits.values() for row in rows]
    facts = {"splits": json.dumps(placed), **_facts(kind, every)}
    files = _option("task", name, f"task_{kind}", **facts)
    if kind == "own":
        files |= _code(name, "task")
    else:  # read every row as the new task will
        new_task = build("task", yaml.safe_load(next(iter(files.values()))), None, None)
        for row in every:
            new_task.read(row.where, row)
    for split, rows in splits.items():
        lines = "".join(_json(row.data) + "\n" for row in rows)
        files[Path("data", name, f"{split}.jsonl")] = lines
    return files


def _sample(kind: str) -> dict[str, list[Row]]:
    """Return rows of the pocket world with the fields of the new task."""
    pocket, fields = KINDS[kind]
    return {
        split: [
            _named(Row(f"{split} {number}", row), fields, kind)
            for number, row in enumerate(islice(pocket_rows(f"pocket_{pocket}", split), most))
        ]
        for split, most in _SAMPLE.items()
    }


def _own(kind: str, data: Path, columns: Sequence[str] | None) -> list[Row]:
    """Return the rows of the user's table with the fields of the new task."""
    fields = list(KINDS[kind][1])
    columns = columns or fields
    if kind == "own":
        raise UserError("--data is not for --kind own. Put your rows into the sample's place.")
    if len(columns) != len(fields) or len(set(columns)) != len(columns):
        raise UserError(
            f"--columns {','.join(columns)}: expected {len(fields)} different columns, for "
            f"{', '.join(fields)}."
        )
    try:
        table(data).check(columns)
    except UserError as error:
        raise UserError(
            f"{error}\n--kind {kind} reads {', '.join(fields)}. Name yours in this order: "
            "--columns A,B,..."
        ) from error
    names_of = dict(zip(fields, columns, strict=True))
    return [_named(row, names_of, kind) for row in table(data).rows(columns)]


def _named(row: Row, fields: Mapping[str, str], kind: str) -> Row:
    """Return a row with the fields of the new task, and its id."""
    values = {new: row.value(old) for new, old in fields.items()}
    if kind in ("classification", "pair"):
        values["label"] = label_text(row.with_fields(values), "label")
        if not values["label"]:
            raise UserError(f"{row.where}: the label is empty; expected text or a number.")
    elif kind == "multilabel":
        values["labels"] = labels_of(row.with_fields(values), "labels")
    elif kind == "similarity":  # a CSV has numbers as text
        try:
            number = float(values["label"])
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            label = shown(values["label"])
            raise UserError(f"{row.where}: the label is {label}; expected a number.")
        values["label"] = number
    elif kind == "own":  # 1, 2, 4 and 5 stars
        stars = 4 * (values["stars"] == "positive") + len(values["text"]) % 2 + 1
        values["stars"] = min(stars, 5)
    return Row(row.where, {"id": row.data["id"], **values} if "id" in row.data else values)


def _facts(kind: str, every: Sequence[Row]) -> Mapping[str, str]:
    """Return what the YAML file of a kind says about the data, as JSON, which is YAML too."""
    if kind in ("classification", "pair"):
        counts = Counter(row.data["label"] for row in every)
        labels = sorted(counts)
        if len(counts) < 2 or (len(counts) > _MOST_LABELS and 2 * len(counts) > len(every)):
            raise UserError(
                f"The labels are {names(labels)}: {len(counts)} different values in {len(every)} "
                "rows. Expected a few labels with many rows each; name another column."
            )
        for label in missing(counts):
            _LOG.warning(
                "the label %s (%d rows) may mean that a row has none; delete such rows",
                *(shown(label), counts[label]),
            )
        words = {label: [_WORDS.get(label, label)] for label in labels}
        return {"labels": _json({label: label for label in labels}), "words": _json(words)}
    if kind == "multilabel":
        labels = sorted({label for row in every for label in row.data["labels"]})
        return {"labels": _json(labels), "words": _json({x: [x] for x in [*labels, NONE]})}
    if kind == "similarity":
        numbers = [row.data["label"] for row in every]
        return {"low": _json(math.floor(min(numbers))), "high": _json(math.ceil(max(numbers)))}
    if kind == "choice":
        answer = every[0].data["answer"]
        word = "letter" if isinstance(answer, str) and len(answer) == 1 else "text"
        return {"answer_is": "index" if isinstance(answer, int) else word}
    if kind in ("tagging", "tags"):  # what is no list of tags is refused when the row is read
        lists = [row.data["tags"] for row in every if isinstance(row.data["tags"], list)]
        tags = {tag for listed in lists for tag in listed if isinstance(tag, str)}
        if kind == "tags":
            return {"labels": _json(sorted(tags - {""}))}
        return {"entities": _json(sorted({t[2:] for t in tags if t[:2] in ("B-", "I-")}))}
    return {}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
