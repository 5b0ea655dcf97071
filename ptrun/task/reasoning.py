"""Questions that Reasoning Gym makes, and its checkers (`pip install 'ptrun[reasoning]'`).

A question is made from its seed alone. Test has seeds of its own; what it asks is in no other part,
and what dev asks is not in train.
"""

import json
import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ptrun.errors import UserError, names, near

_LOG = logging.getLogger(__name__)
_PACKAGE = "reasoning_gym"
_ORDER = ("test", "validation", "train")
_SIZES = {"train": 2000, "validation": 200, "test": 500}
_PATIENCE = 20  # questions that are made for each that is wanted
_APART = 10**9  # between the seeds of two parts


def installed() -> str:
    """Return the version of the package, which decides what is asked."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(_PACKAGE)
    except PackageNotFoundError as error:
        raise UserError(
            "Reasoning Gym is not installed. Type pip install 'ptrun[reasoning]'."
        ) from error


def rows(origin: Mapping[str, Any], split: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a name and a row for each question: `question`, `answer`, and the `entry` of both.

    `origin` has the name of a generator (`reasoning`), its `options`, a `seed`, and how many `rows`
    a split has.
    """
    if split not in _ORDER:
        raise UserError(f"task.splits: no split {split!r} is made; use {names(_ORDER)}.")
    sizes = {**_SIZES, **origin.get("rows", {})}
    asked: set[str] = set()
    for name in _ORDER[: _ORDER.index(split) + 1]:
        questions = list(_different(origin, name, sizes[name], asked))
    yield from questions


def checked(origin: Mapping[str, Any], text: str, entry: Mapping[str, Any]) -> float:
    """Return the score of an answer, 0 to 1, by the generator's own checker."""
    generator = _generator(origin, 0, 1)
    try:
        return float(generator.score_answer(text, entry))
    except Exception as error:  # a checker reads any text that a model writes
        _LOG.warning("The checker cannot read %r (%s): scored as wrong.", text[:80], error)
        return 0.0


def _different(
    origin: Mapping[str, Any], split: str, count: int, asked: set[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield questions that are not in `asked`, and add them."""
    most = count * _PATIENCE
    seed, before = origin.get("seed", 0), len(asked)
    if type(seed) is not int or not 0 <= seed < _APART:
        raise UserError(f"task.source.seed={seed}; use a whole number from 0 to {_APART - 1:,}.")
    generator = _generator(origin, seed + _APART * _ORDER.index(split), most)
    for index in range(most):
        entry = generator[index]
        if (question := entry["question"]) in asked or entry["answer"] == "":
            continue  # nothing is learned from an empty answer
        asked.add(question)
        yield f"{index}", {"question": question, "answer": entry["answer"], "entry": entry}
        if len(asked) - before == count:
            return
    few = f"{origin['reasoning']} has only {len(asked) - before} different questions left for it"
    raise UserError(f"task.source.rows.{split}={count}: {few}.")


def _generator(origin: Mapping[str, Any], seed: int, size: int) -> Any:
    return _made(origin["reasoning"], json.dumps(origin.get("options", {})), seed, size)


@lru_cache(maxsize=8)
def _made(name: str, options: str, seed: int, size: int) -> Any:
    """Return a generator."""
    installed()
    from reasoning_gym.factory import DATASETS, create_dataset

    if name not in DATASETS:
        raise UserError(
            f"task.source.reasoning={name}: no generator of Reasoning Gym{near(name, DATASETS)}\n"
            f"There are {names(sorted(DATASETS))}."
        )
    try:
        return create_dataset(name, seed=seed, size=size, **json.loads(options))
    except (TypeError, AssertionError, ValueError) as error:
        raise UserError(f"task.source.options of {name}: {error}") from error
