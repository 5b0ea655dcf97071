"""Every command, from its parser: what it does, its options with type and default, its examples."""

import argparse
from collections.abc import Iterator
from importlib import import_module

from text import cell, table

from ptrun.command.import_ import kinds
from ptrun.config.arguments import Parser, load
from ptrun.config.arguments import commands as names


def commands() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(parser) for parser in _parsers())


def _parsers() -> Iterator[Parser]:
    for name in names():
        yield load(name).PARSER
        if name == "import":
            yield from (kind.PARSER for kind in kinds().values())


def _section(parser: Parser) -> str:
    said = [cell(part) for part in (parser.description or "").split("\n\n")]
    rows = [_row(a) for a in parser._actions if not isinstance(a, argparse._HelpAction)]
    options = table(("argument", "value", "default", "meaning"), rows)
    more = f"```text\n{str(parser.epilog).rstrip()}\n```"
    return "\n\n".join([f"## {parser.prog}", *said, options, more])


def _row(action: argparse.Action) -> tuple[str, str, str, str]:
    """Return one argument: its name, what it takes, its default and its meaning."""
    name = ", ".join(action.option_strings) or _value(action) or action.dest
    takes = "" if action.nargs == 0 or not action.option_strings else _value(action)
    default = action.default if action.option_strings and action.nargs != 0 else None
    shown = "needed" if action.required and action.nargs != "*" else ""
    shown = shown if default is None else f"`{default}`"
    return f"`{name}`", cell(takes), shown, cell(str(action.help or ""))


def _value(action: argparse.Action) -> str:
    if action.choices:
        return ", ".join(map(str, action.choices))
    shown = action.metavar or action.dest.upper()
    return shown if isinstance(shown, str) else " ".join(shown)


def imports(of: str = "") -> str:
    """Return the kinds of `ptrun import`, or those of a class, and what each reads."""
    rows = [
        (f"`{name}`", cell(str(kind.PARSER.description).partition("\n\n")[0]))
        for name, kind in kinds().items()
        if of in ("", type(kind).__name__)
    ]
    return table(("`ptrun import`", "reads"), rows)


def starts() -> str:
    """Return the values of `start=` from the docstring of the module that reads them."""
    text = import_module("ptrun.start.spec").__doc__ or ""
    rows: list[list[str]] = []
    for line in [line.strip("|") for line in text.splitlines() if line.startswith("|")][2:]:
        value, meaning = (part.strip() for part in line.split("|"))
        if value:
            rows.append([value, meaning])
        else:
            rows[-1][1] += f" {meaning}"
    return table(("start", "initial value"), rows)
