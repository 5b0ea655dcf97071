"""The user's own pattern: one line, or a file of one line or of a PVP's keys in YAML."""

import os
from pathlib import Path
from typing import Any

from yaml import YAMLError

from ptrun.config import plain_yaml
from ptrun.errors import UserError, near, shown
from ptrun.task.lines import text_lines
from ptrun.task.table import check_file

_KEYS = ("pattern", "words", "rule")  # a line with none of them is a pattern, even with a colon
_MOST_BYTES = 20_000
_EXPECTED = (
    'expected one line such as {~text} It was {mask}. or YAML: pattern: "...", optionally with '
    "words: {label: [word]} and rule."
)


def entry(option: str) -> dict[Any, Any]:
    """Return the PVP entry of `task.pattern`, either a pattern or `@FILE`.

    `ptrun.pattern.pattern` checks keys and values when it reads the PVPs.
    """
    if "{" not in option and os.path.isfile(option):
        raise UserError(f"task.pattern={option} is a file; type task.pattern=@{option}.")
    if not option.startswith("@"):
        return {"pattern": option}
    file = Path(os.path.expanduser(option[1:]))
    text = text_of(file, _MOST_BYTES, f"no pattern; {_EXPECTED}").strip()
    if "\n" not in text and not near(text.partition(":")[0], _KEYS):
        return {"pattern": text}
    try:
        content = plain_yaml.load_plain(text)
    except (YAMLError, ValueError) as error:
        problem = " ".join(str(error).split())[:240]
        raise UserError(f"{file}: not YAML ({problem}); {_EXPECTED}") from error
    if not isinstance(content, dict):
        raise UserError(f"{file}: found {shown(text)}; {_EXPECTED}")
    return content


def text_of(file: Path, most_bytes: int, expected: str) -> str:
    """Return a file's text; `expected` ends the refusal by size."""
    check_file(file)
    if file.stat().st_size > most_bytes:
        raise UserError(f"{file}: more than {most_bytes:,} bytes, {expected}")
    return "".join(line for _, line in text_lines(file))
