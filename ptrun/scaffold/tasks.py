"""The files of a new task: its options, and its data, a sample or the user's own."""

import json
import keyword
import logging
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """Refuse a name that no file or class can have, or that an option has.

    Raises:
        UserError: says what a name looks like, or which file has it.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"{name!r} cannot be a name. Use small letters, digits and _, beginning with a letter, "
            f"such as ptrun new {group} my_{group}."
        )
    if (file := options(group).get(name)) is not None:
        raise UserError(f"{group}={name} exists: {file}. Choose another name.")


def option(group: str, name: str, template: str, **facts: str) -> dict[Path, str]:
    """Return the YAML file of an option and its text."""
    text = Template((HERE / f"{template}.yaml").read_text("utf-8"))
    filled = text.substitute(name=name, **{"class": class_name(name), **facts})
    return {CONF / group / f"{name}.yaml": filled}


def code(name: str, example: str) -> dict[Path, str]:
    """Return the file of a class and its text: an example under another name.

    Args:
        name: the name of the option.
        example: `method` or `task`.
    """
    text = (HERE / f"example_{example}.py").read_text("utf-8")
    text = text.replace(f"Example{example.capitalize()}", class_name(name))
    return {CODE / f"{name}.py": text}


def class_name(name: str) -> str:
    """Return the name of the class of an option: `MyShift` for `my_shift`."""
    return "".join(part.capitalize() for part in name.split("_"))


def method(name: str) -> Mapping[Path, str]:
    """Return the files of a new method."""
    return {**option("method", name, "method"), **code(name, "method")}


def backbone(name: str) -> Mapping[Path, str]:
    """Return the file of a new backbone."""
    return option("backbone", name, "backbone")


def cluster(name: str) -> Mapping[Path, str]:
    """Return the file of a new cluster."""
    return option("cluster", name, "cluster")


DATA = Path("data")
_SAMPLE = {"train": 200, "validation": 50, "test": 50}
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_MOST_LABELS = 20
_WORDS = {"positive": "good", "negative": "bad"}
_WORDS |= {"entailment": "yes", "neutral": "and", "contradiction": "no"}


@dataclass(frozen=True)
class Kind:
    """A kind of task.

    Args:
        pocket: the task of the pocket world that the sample is from.
        taken: its fields.
        fields: their names in the new task; the last one is the answer.
    """

    pocket: str
    taken: Sequence[str]
    fields: Sequence[str]


_QA = ("question", "context", "answers")
KINDS = {
    "classification": Kind("sentiment", ("sentence", "label"), ("text", "label")),
    "multilabel": Kind("two_topics", ("text", "topics"), ("text", "labels")),
    "pair": Kind("pairs", ("premise", "hypothesis", "label"), ("first", "second", "label")),
    "similarity": Kind(
        "similarity", ("sentence1", "sentence2", "label"), ("first", "second", "label")
    ),
    "choice": Kind(
        "choice",
        ("article", "question", "options", "answer"),
        ("context", "question", "options", "answer"),
    ),
    "tagging": Kind("ner", ("tokens", "ner_tags"), ("tokens", "tags")),
    "extraction": Kind("qa", _QA, _QA),
    "generation": Kind("writing", ("facts", "sentences"), ("text", "answer")),
    "multispan": Kind("multispan", _QA, _QA),
    "own": Kind("sentiment", ("sentence", "label"), ("text", "stars")),
}


def task(
    name: str, kind: str, data: Path | None = None, columns: Sequence[str] | None = None
) -> dict[Path, str]:
    """Return the files of a new task.

    Args:
        name: its name.
        kind: one of `KINDS`; `own` has a class of its own.
        data: a table of the user's; None for a sample.
        columns: its columns, in the order of the kind's fields; None if they have those names.

    Raises:
        UserError: the table or a row of it does not fit the kind.
    """
    splits = _sample(kind) if data is None else {"train": _own(kind, data, columns)}
    placed = {part: split if split in splits else None for part, split in _SPLITS.items()}
    every = [row for rows in splits.values() for row in rows]
    facts = {"splits": json.dumps(placed), **_facts(kind, every)}
    files = option("task", name, f"task_{kind}", **facts)
    if kind == "own":
        files |= code(name, "task")
    else:
        _check(next(iter(files.values())), every)
    for split, rows in splits.items():
        lines = "".join(_json(row.data) + "\n" for row in rows)
        files[DATA / name / f"{split}.jsonl"] = lines
    return files


def _sample(kind: str) -> dict[str, list[Row]]:
    """Return rows of the pocket world with the fields of the new task."""
    form, splits = KINDS[kind], {}
    for split, most in _SAMPLE.items():
        pocket = islice(pocket_rows(f"pocket_{form.pocket}", split), most)
        rows = [Row(f"{split} {number}", row) for number, row in enumerate(pocket)]
        splits[split] = [_named(row, form.taken, form.fields, kind) for row in rows]
    return splits


def _own(kind: str, data: Path, columns: Sequence[str] | None) -> list[Row]:
    """Return the rows of the user's table with the fields of the new task."""
    fields = KINDS[kind].fields
    taken = columns or fields
    if kind == "own":
        raise UserError("--data is not for --kind own. Put your rows into the sample's place.")
    if len(taken) != len(fields) or len(set(taken)) != len(taken):
        raise UserError(
            f"--columns {','.join(taken)}: expected {len(fields)} different columns, for "
            f"{', '.join(fields)}."
        )
    try:
        table(data).check(taken)
    except UserError as error:
        raise UserError(
            f"{error}\n--kind {kind} reads {', '.join(fields)}. Name yours in this order: "
            "--columns A,B,..."
        ) from error
    return [_named(row, taken, fields, kind) for row in table(data).rows(taken)]


def _named(row: Row, taken: Sequence[str], fields: Sequence[str], kind: str) -> Row:
    """Return a row with the fields of the new task, and its id."""
    values = {new: row.value(old) for old, new in zip(taken, fields, strict=True)}
    if kind in ("classification", "pair"):
        values["label"] = _label(row.with_fields(values))
    elif kind == "multilabel":
        values["labels"] = labels_of(row.with_fields(values), "labels")
    elif kind == "similarity":
        values["label"] = _number(row, values["label"])
    elif kind == "own":  # 1, 2, 4 and 5 stars
        values["stars"] = 4 * (values["stars"] == "positive") + len(values["text"]) % 2 + 1
        values["stars"] = min(values["stars"], 5)
    return Row(row.where, {"id": row.data["id"], **values} if "id" in row.data else values)


def _label(row: Row) -> str:
    """Return a label as text."""
    if not (text := label_text(row, "label")):
        raise UserError(f"{row.where}: the label is empty; expected text or a number.")
    return text


def _number(row: Row, label: Any) -> float:
    """Return a number, which a CSV has as text."""
    try:
        number = float(label)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{row.where}: the label is {shown(label)}; expected a number.")
    return number


def _facts(kind: str, every: Sequence[Row]) -> Mapping[str, str]:
    """Return what the YAML file of a kind says about the data, as JSON, which is YAML too."""
    if kind in ("classification", "pair"):
        labels = _labels(every)
        words = {label: [_WORDS.get(label, label)] for label in labels}
        return {"labels": _json({label: label for label in labels}), "words": _json(words)}
    if kind == "multilabel":
        labels = sorted({label for row in every for label in row.data["labels"]})
        return {"labels": _json(labels), "words": _json({x: [x] for x in [*labels, NONE]})}
    if kind == "similarity":
        numbers = [row.data["label"] for row in every]
        return {"low": _json(math.floor(min(numbers))), "high": _json(math.ceil(max(numbers)))}
    if kind == "choice":
        return {"answer_is": _answer_is(every[0].data["answer"])}
    return {"entities": _json(sorted(set(_types(every))))} if kind == "tagging" else {}


def _labels(every: Sequence[Row]) -> list[str]:
    """Return the labels, sorted."""
    counts = Counter(row.data["label"] for row in every)
    if len(counts) < 2 or (len(counts) > _MOST_LABELS and 2 * len(counts) > len(every)):
        raise UserError(
            f"The labels are {names(sorted(counts))}: {len(counts)} different values in "
            f"{len(every)} rows. Expected a few labels with many rows each; name another column."
        )
    for label in missing(counts):
        _LOG.warning(
            "the label %s (%d rows) may mean that a row has none; delete such rows",
            *(shown(label), counts[label]),
        )
    return sorted(counts)


def _answer_is(answer: Any) -> str:
    """Return how an answer names its option."""
    if isinstance(answer, int):
        return "index"
    return "letter" if isinstance(answer, str) and len(answer) == 1 else "text"


def _types(every: Sequence[Row]) -> Iterator[str]:
    """Yield the types of tags; what is no list of tags is refused when the row is read."""
    for row in every:
        tags = row.data["tags"]
        for tag in tags if isinstance(tags, list) else ():
            if isinstance(tag, str) and tag[:2] in ("B-", "I-"):
                yield tag[2:]


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _check(text: str, every: Sequence[Row]) -> None:
    """Read every row as the new task will."""
    task = build("task", yaml.safe_load(text), None, None)
    for row in every:
        task.read(row.where, row)
