"""Lists of the words that may be predicted: one word per line, or P-tuning's JSON of LAMA."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.dataset import is_texts
from ptrun.task.lines import json_file
from ptrun.task.shown import names

_START = "Ġ"  # how GPT-2 and RoBERTa write the start of a word


def word_list(file: Path, model: str | None) -> list[str]:
    """Return the words of a file, each once.

    A `.json` file has a list of tokens for each of several models (`29k-vocab.json`). Where tokens
    carry GPT-2's mark of a word's start, only those are words, without the mark.

    Args:
        file: the file.
        model: whose list to read, for a `.json` file.

    Raises:
        UserError: the file has no word or no such list, or `model` does not suit it.
    """
    if file.suffix == ".json":
        words = _words(_list_of(file, json_file(file), model))
    elif model is not None:
        raise UserError(
            f"task.vocabulary_of={model}: {file} is one list of words; leave it out. It selects a "
            "list of a .json file."
        )
    else:
        words = (line.strip() for line in file.read_bytes().decode("utf-8").splitlines())
    if not (listed := list(dict.fromkeys(word for word in words if word))):
        raise UserError(f"task.vocabulary={file}: the file has no word.")
    return listed


def _list_of(file: Path, lists: dict[str, Any], model: str | None) -> Sequence[str]:
    """Return one list; the tokens may also be the keys of an object."""
    if model not in lists:
        problem = "no model is named" if model is None else f"it has no list of {model}"
        raise UserError(
            f"task.vocabulary={file}: {problem}; type task.vocabulary_of=NAME, one of "
            f"{names(lists)}."
        )
    tokens = list(lists[model]) if isinstance(lists[model], dict) else lists[model]
    if not is_texts(tokens):
        raise UserError(f"{file}: {model} has no list of tokens.")
    return tokens  # type: ignore[no-any-return]


def _words(tokens: Sequence[str]) -> Iterable[str]:
    marked = [token.removeprefix(_START) for token in tokens if token.startswith(_START)]
    return marked or tokens
