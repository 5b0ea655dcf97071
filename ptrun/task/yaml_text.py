"""Reading of YAML files that a user wrote."""

from pathlib import Path
from typing import Any

from yaml import YAMLError

from ptrun.config import plain_yaml
from ptrun.errors import UserError
from ptrun.task.lines import text_lines
from ptrun.task.table import check_file


def text_of(file: Path, most_bytes: int, wanted: str) -> str:
    """Return a file's text without leading and trailing white space.

    Raises:
        UserError: there is no such file, it is not UTF-8, or it is too large; `wanted` ends the
            last message with what is expected.
    """
    check_file(file)
    if file.stat().st_size > most_bytes:
        raise UserError(f"{file}: more than {most_bytes:,} bytes, {wanted}")
    return "".join(line for _, line in text_lines(file)).strip()


def parse_yaml(text: str) -> Any:
    """Return the content of YAML text as plain data.

    Raises:
        ValueError: it is not YAML, or has a key twice.
    """
    try:
        found = plain_yaml.load(text)
        return {} if found is None else found
    except (YAMLError, ValueError) as error:
        raise ValueError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    """Return a YAML error in one line, with its line number."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error)
    return " ".join(str(problem).split())[:120] + (f", line {mark.line + 1}" if mark else "")
