"""Pieces of Markdown."""

from collections.abc import Iterable, Sequence


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
