"""The word lists and sentence patterns of the pocket world."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def table(name: str) -> dict[str, Any]:
    """Return the data file `name`.toml of this package as a dictionary."""
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def items(text: str) -> tuple[str, ...]:
    """Split a word list: at semicolons and line ends if it has a semicolon, else at blanks."""
    if ";" not in text:
        return tuple(text.split())
    parts = text.replace("\n", ";").split(";")
    return tuple(part.strip() for part in parts if part.strip())


@cache
def words(name: str, key: str) -> tuple[str, ...]:
    """Return the word list `key` of the data file `name`."""
    return items(table(name)[key])
