"""Every command with its help, as the parsers print it."""

import os
from importlib import import_module

from ptrun.cli import commands as names
from ptrun.cli import load

os.environ["COLUMNS"] = "96"


def commands() -> str:
    """Return a section for each command."""
    return "\n\n".join(_section(name) for name in names())


def _section(name: str) -> str:
    parts = [f"## ptrun {name}", _help(load(name).parser())]
    if name == "import":
        parts += ["## ptrun import data", _help(load(name).data_parser())]
    return "\n\n".join(parts)


def _help(parser: object) -> str:
    text: str = parser.format_help()  # type: ignore[attr-defined]
    return f"```text\n{text.rstrip()}\n```"


def starts() -> str:
    """Return the values of `start=` from the docstring of the module that reads them."""
    text = import_module("ptrun.start.spec").__doc__ or ""
    lines = [line.strip() for line in text.splitlines() if line.startswith("|")]
    rows: list[list[str]] = []
    for line in lines[2:]:
        value, meaning = (part.strip() for part in line.strip("|").split("|"))
        if value:
            rows.append([value, meaning])
        else:
            rows[-1][1] += f" {meaning}"
    return "\n".join(["| start | initial value |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)])
