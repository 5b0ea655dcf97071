"""A pattern of the user's own: one line, or a file of one line or of a PVP's keys in YAML."""

import os
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.shown import near, shown
from ptrun.task.yaml_text import parse_yaml, text_of

_KEYS = ("pattern", "words", "rule")  # a line with none of them is a pattern, colon or not
_MOST_BYTES = 20_000
_EXPECTED = (
    'expected one line such as {~text} It was {mask}. or YAML: pattern: "...", and if need be '
    "words: {label: [word]} and rule."
)


def place(given: str) -> str:
    """Return where a pattern was written, as errors name it: its file, or the option."""
    return given.removeprefix("@") if given.startswith("@") else "task.pattern"


def entry(given: str) -> dict[Any, Any]:
    """Return the PVP entry that `task.pattern` is, or that the file after its @ holds.

    Keys and values are checked where PVPs are read (`ptrun.prompt.pvp`).

    Raises:
        UserError: there is no such file, it is neither one line nor YAML, or its @ was left out.
    """
    if "{" not in given and os.path.isfile(given):
        raise UserError(f"task.pattern={given} is a file; type task.pattern=@{given}.")
    if not given.startswith("@"):
        return {"pattern": given}
    file = Path(os.path.expanduser(place(given)))
    text = text_of(file, _MOST_BYTES, f"no pattern; {_EXPECTED}")
    line = "\n" not in text
    try:
        found = parse_yaml(text)
    except ValueError as error:
        if line:
            return {"pattern": text}
        raise UserError(f"{file}: not YAML ({error}); {_EXPECTED}") from error
    if line and not (isinstance(found, dict) and any(near(str(key), _KEYS) for key in found)):
        return {"pattern": text}
    if not isinstance(found, dict) or list(found.values()) == [None]:
        raise UserError(f"{file}: found {shown(text)}; {_EXPECTED}")
    return found
