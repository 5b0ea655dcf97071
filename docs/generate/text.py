"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path


def cell(text: str) -> str:
    """Return a text for the cell of a table; outside of code, `<` begins no tag."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def figure(drawing: str, caption: str) -> str:
    """Return a drawing with its caption, as HTML."""
    return f'<figure class="placement">{drawing}<figcaption>{caption}</figcaption></figure>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def notes(file: Path, leave_out: tuple[str, ...] = ()) -> str:
    """Return what the comments at the top of a YAML file say behind their first line.

    Indented lines are commands or tables, and become blocks. A line that begins with a text of
    `leave_out` is not shown.
    """
    lines: list[str] = []
    for line in file.read_text("utf-8").splitlines():
        if not line.startswith("#"):
            break
        if not line.startswith(("# @package", *leave_out)):
            lines.append(line[2:])
    parts = []
    for indented, block in groupby(lines[1:], key=lambda line: line.startswith("  ")):
        if indented:
            parts.append("\n".join(["```text", *(line[2:] for line in block), "```"]))
        else:
            parts.append(cell(" ".join(block)))
    return "\n\n".join(parts)
