"""The labelled tasks of the pocket world."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

from ptrun.pocket import (
    choice,
    multispan,
    ner,
    pairs,
    probe,
    qa,
    sentiment,
    similarity,
    srl,
    topics,
)

VERSION = 2  # raise it when any generated text changes

TASKS: dict[str, Callable[[str], list[dict[str, Any]]]] = {
    "pocket_ner": ner.rows,
    "pocket_sentiment": sentiment.rows,
    "pocket_topics": topics.rows,
    "pocket_pairs": pairs.rows,
    "pocket_similarity": similarity.rows,
    "pocket_choice": choice.rows,
    "pocket_srl": srl.rows,
    "pocket_qa": qa.rows,
    "pocket_multispan": multispan.rows,
    "pocket_facts": probe.rows,
}
SPLITS = ("train", "validation", "test")


def rows(task: str, split: str) -> list[dict[str, Any]]:
    """Return the labelled rows of a task's split, the same in every process.

    Raises ValueError for an unknown task or split, naming those allowed.
    """
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(TASKS)}")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; allowed are {', '.join(SPLITS)}")
    return deepcopy(_rows(task, split))


@cache
def _rows(task: str, split: str) -> list[dict[str, Any]]:
    return TASKS[task](split)
