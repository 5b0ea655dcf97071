"""YAML that a user wrote into a file: its text, and what it says."""

from io import StringIO
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ptrun.errors import UserError
from ptrun.task.lines import byte_lines, decoded
from ptrun.task.table import check_file


def text_of(file: Path, most_bytes: int, wanted: str) -> str:
    """Return a file's text, without the spaces at its ends.

    Raises:
        UserError: there is no such file, it is no text, or too large; `wanted` says what for.
    """
    check_file(file)
    if file.stat().st_size > most_bytes:
        raise UserError(f"{file}: more than {most_bytes:,} bytes, {wanted}")
    lines = enumerate(byte_lines(file), start=1)
    return "".join(decoded(f"{file}:{i}", line, file) for i, line in lines).strip()


def parse_yaml(text: str) -> Any:
    """Return what YAML says, as plain data.

    Raises:
        ValueError: it is not YAML, or names a key twice.
    """
    try:
        return OmegaConf.to_container(OmegaConf.load(StringIO(text)))
    except (YAMLError, OmegaConfBaseException, OSError, ValueError, RecursionError) as error:
        raise ValueError(_short(error)) from error


def _short(error: Exception) -> str:
    """Return YAML's complaint in one line, with the line it is about."""
    mark = getattr(error, "problem_mark", None)
    told = getattr(error, "problem", None) or str(error)
    return " ".join(str(told).split())[:120] + (f", line {mark.line + 1}" if mark else "")
