"""SQuAD's own JSON files as rows: one question with its context and answers each."""

from collections.abc import Iterator
from pathlib import Path

from ptrun.errors import UserError, names
from ptrun.importing.data import MadeFile, Record, each, whole_number
from ptrun.task.lines import json_file
from ptrun.task.source import Row

_SPLITS = {"train": "train", "dev": "validation"}


def squad(source: Path) -> list[MadeFile]:
    """Return the files of `task=squad`, or of `task=squad_v2` if the files are version 2.

    Args:
        source: a file, or a folder of files whose names begin with train and dev.

    Raises:
        UserError: there is no such file, or it is not SQuAD's.
    """
    files = [source] if source.is_file() else sorted(source.glob("*.json"))
    found = {split: f for part, split in _SPLITS.items() for f in files if part in f.name.lower()}
    if not found:
        raise UserError(
            f"{source}: no file of SQuAD among {names(f.name for f in files) or 'no files'}; their "
            "names have train or dev, as train-v1.1.json."
        )
    folder = "squad_v2" if any(map(_is_second, found.values())) else "squad"
    return [
        MadeFile(folder, f"{split}.jsonl", [file], _rows(file)) for split, file in found.items()
    ]


def _is_second(file: Path) -> bool:
    return str(json_file(file).get("version", "")).lstrip("v").startswith("2")


def _rows(file: Path) -> Iterator[Record]:
    for article in each(Row(str(file), json_file(file)), "data"):
        for paragraph in each(article, "paragraphs"):
            context = paragraph.text("context")
            for question in each(paragraph, "qas"):
                yield {
                    "id": question.text("id"),
                    "title": str(article.data.get("title", "")),
                    "context": context,
                    "question": question.text("question"),
                    "answers": _answers(question),
                }


def _answers(question: Row) -> dict[str, list[object]]:
    given = [] if question.data.get("is_impossible") else each(question, "answers")
    return {
        "text": [one.text("text") for one in given],
        "answer_start": [whole_number(one, "answer_start") for one in given],
    }
