"""The parser of a command: overrides are `key=value`, options are `--flag value`."""

import argparse
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ptrun.config.paths import PACKAGE
from ptrun.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser that raises `UserError`.

    Args:
        command: the word after `ptrun`.
        description: what the command does; the first line is its summary.
        examples: two or more command lines, each with a description.
    """

    def __init__(self, command: str, description: str | None, examples: str):
        super().__init__(
            prog=f"ptrun {command}",
            description=(description or "").strip(),
            epilog=f"examples:\n{examples.rstrip()}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.command = command

    def overrides(self, text: str) -> None:
        """Accept overrides of the configuration; `text` is their help."""
        self.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=text)

    @property
    def flags(self) -> list[str]:
        """The options, such as `--help`."""
        return [flag for action in self._actions for flag in action.option_strings]

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the parsed arguments; overrides and options may be mixed."""
        parsed, rest = self.parse_known_intermixed_args(arguments)
        for argument in arguments:
            key, equals, value = argument.partition("=")
            flag = f"--{key.replace('_', '-')}"
            if equals and flag in self.flags:
                self.error(f"{argument} is an option of the command: type {flag} {value}".rstrip())
        for override in getattr(parsed, "overrides", ()):
            if "=" not in override and not override.startswith("~"):
                self.error(f"expected KEY=VALUE, got {override!r}")
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise a `UserError` that points to `--help`."""
        raise UserError(f"{self.command}: {message}.\nSee {self.prog} --help.")


# The commands: the files of `ptrun/command`.


def commands() -> list[str]:
    """Return the names of all commands."""
    return sorted(file.stem.rstrip("_") for file in (PACKAGE / "command").glob("[a-z]*.py"))


def load(command: str) -> Any:
    """Return the module of a command. One that is a Python keyword ends in `_`."""
    there = (PACKAGE / "command" / f"{command}.py").is_file()
    return import_module(f"ptrun.command.{command if there else f'{command}_'}")
