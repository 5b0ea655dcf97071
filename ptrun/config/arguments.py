"""The parser of a command: overrides are `key=value`, options are `--flag value`."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from ptrun.config.paths import PACKAGE, entry_points
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


# The commands: the files of `ptrun/command`, and what installed packages add.

COMMANDS = "ptrun.commands"
"""The entry points of commands; each names a module, or object, with `PARSER` and `main`."""


def commands() -> dict[str, str]:
    """Return the names of all commands, and what each does in one line."""
    own = [file.stem.rstrip("_") for file in (PACKAGE / "command").glob("[a-z]*.py")]
    modules = additions(COMMANDS) | {name: load(name) for name in own}
    return {name: summary(module) for name, module in sorted(modules.items())}


def load(command: str) -> Any:
    """Return the module of a command, or None. One that is a Python keyword ends in `_`."""
    if "=" in command or not command[:1].isalpha():
        return None
    for stem in (command, f"{command}_"):
        if command.isalpha() and (PACKAGE / "command" / f"{stem}.py").is_file():
            return import_module(f"ptrun.command.{stem}")
    return addition(COMMANDS, command)


def summary(command: Any) -> str:
    """Return what a command does, in one line."""
    return str(command.PARSER.description).partition("\n")[0]


def addition(group: str, name: str) -> Any:
    """Return what an installed package adds to a group by this name, or None."""
    for entry in entry_points(group):
        if entry.name == name:
            try:
                command = entry.load()
                command.PARSER, command.main  # noqa: B018
            except Exception as error:
                package = entry.dist.name if entry.dist else entry.module.partition(".")[0]
                raise UserError(
                    f"{name}: the package {package} declares {group} = {name}:{entry.value}, which "
                    f"cannot be imported ({type(error).__name__}: {error}). Type "
                    f"pip install --force-reinstall {package}, or uninstall it."
                ) from error
            return command
    return None


def additions(group: str) -> dict[str, Any]:
    """Return what installed packages add to a group, by name; what is broken is left out."""
    commands = {}
    for entry in entry_points(group):
        with suppress(UserError):
            commands[entry.name] = addition(group, entry.name)
    return commands
