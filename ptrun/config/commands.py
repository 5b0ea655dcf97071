"""The commands: the files of `ptrun/command`."""

from importlib import import_module
from typing import Any

from ptrun.config.paths import PACKAGE


def commands() -> list[str]:
    """Return the names of all commands."""
    return sorted(file.stem.rstrip("_") for file in (PACKAGE / "command").glob("[a-z]*.py"))


def load(command: str) -> Any:
    """Return the module of a command. One that is a Python keyword ends in `_`."""
    there = (PACKAGE / "command" / f"{command}.py").is_file()
    return import_module(f"ptrun.command.{command if there else f'{command}_'}")
