"""The labelled tasks of the pocket world."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

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
from ptrun.pocket.draw import SPLITS, Row, splits

VERSION = 2  # raise it when any generated text changes

TASKS: dict[str, Callable[[], dict[str, list[Row]]]] = {
    "pocket_ner": partial(splits, "ner", ner.make, ("tokens",), shuffled=False),
    "pocket_sentiment": partial(
        splits, "sentiment", sentiment.make, ("sentence",), sentiment.SIZES
    ),
    "pocket_topics": partial(splits, "topics", topics.make, ("text",)),
    "pocket_pairs": partial(splits, "pairs", pairs.make, ("premise", "hypothesis")),
    "pocket_similarity": partial(splits, "similarity", similarity.make, ("sentence1", "sentence2")),
    "pocket_choice": partial(splits, "choice", choice.make, ("article",)),
    "pocket_srl": partial(splits, "srl", srl.make, ("tokens",)),
    "pocket_qa": partial(splits, "qa", qa.make, ("context",)),
    "pocket_multispan": partial(splits, "multispan", multispan.make, ("context",)),
    "pocket_facts": probe.splits,
}


def rows(task: str, split: str) -> list[Row]:
    """Return the labelled rows of a task's split, the same in every process.

    Raises ValueError for an unknown task or split, naming those allowed.
    """
    if task not in TASKS:
        raise ValueError(f"task is {task!r}; allowed are {', '.join(TASKS)}")
    if split not in SPLITS:
        raise ValueError(f"split is {split!r}; allowed are {', '.join(SPLITS)}")
    return deepcopy(TASKS[task]()[split])
