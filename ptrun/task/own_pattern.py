"""The user's own pattern: one line, or a file of one line or of a PVP's keys in YAML."""

import os
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.task.shown import near, shown
from ptrun.task.yaml_text import parse_yaml, text_of

_KEYS = ("pattern", "words", "rule")  # a line with none of them is a pattern, even with a colon
_MOST_BYTES = 20_000
_EXPECTED = (
    'expected one line such as {~text} It was {mask}. or YAML: pattern: "...", optionally with '
    "words: {label: [word]} and rule."
)


def place(option: str) -> str:
    """Return where a pattern was written, for errors: its file, or the option `task.pattern`."""
    return option.removeprefix("@") if option.startswith("@") else "task.pattern"


def entry(option: str) -> dict[Any, Any]:
    """Return the PVP entry of `task.pattern`, either a pattern or `@FILE`.

    `ptrun.prompt.pvp` checks keys and values when it reads the PVPs.

    Raises:
        UserError: there is no such file, it is neither one line nor YAML, or its @ is missing.
    """
    if "{" not in option and os.path.isfile(option):
        raise UserError(f"task.pattern={option} is a file; type task.pattern=@{option}.")
    if not option.startswith("@"):
        return {"pattern": option}
    file = Path(os.path.expanduser(place(option)))
    text = text_of(file, _MOST_BYTES, f"no pattern; {_EXPECTED}")
    one_line = "\n" not in text
    try:
        content = parse_yaml(text)
    except ValueError as error:
        if one_line:
            return {"pattern": text}
        raise UserError(f"{file}: not YAML ({error}); {_EXPECTED}") from error
    has_keys = isinstance(content, dict) and any(near(str(key), _KEYS) for key in content)
    if one_line and not has_keys:
        return {"pattern": text}
    if not isinstance(content, dict) or list(content.values()) == [None]:
        raise UserError(f"{file}: found {shown(text)}; {_EXPECTED}")
    return content
