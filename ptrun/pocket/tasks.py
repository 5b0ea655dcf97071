"""The labelled tasks of the pocket world, read from `rows/TASK/SPLIT.jsonl.gz`.

`python -m workshop.pocket` makes these files, in a checkout.
"""

import gzip
import json
from pathlib import Path
from typing import Any

VERSION = 2  # raise it when any generated text changes
TASKS = (
    *("pocket_ner", "pocket_sentiment", "pocket_topics", "pocket_pairs", "pocket_similarity"),
    *("pocket_choice", "pocket_srl", "pocket_qa", "pocket_multispan", "pocket_facts"),
    *("pocket_writing", "pocket_two_topics", "pocket_words"),
)
SPLITS = ("train", "validation", "test")

Row = dict[str, Any]


def rows(task: str, split: str) -> list[Row]:
    """Return the labelled rows of a task's split.

    Raises ValueError for an unknown task or split, naming those allowed.
    """
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(TASKS)}")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; allowed are {', '.join(SPLITS)}")
    with gzip.open(file_of(task, split), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def file_of(task: str, split: str) -> Path:
    """Return the file with the rows of a split."""
    return Path(__file__).parent / "rows" / task / f"{split}.jsonl.gz"
