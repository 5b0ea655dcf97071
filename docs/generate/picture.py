"""Draws a placement: positions from left to right, layers from bottom to top."""

from collections.abc import Iterator

from drawing import arrow, box, drawing, words
from placement import Placement, Stack

_CELL, _PREFIX, _ROW = 50.0, 15.0, 24.0
_LABEL, _TOP, _GAP = 64.0, 44.0, 34.0
_LONGEST = 8  # letters of a token that fit into a cell


def picture(placed: Placement, title: str) -> str:
    """Return the drawing of a placement as SVG for a page."""
    tallest = max(stack.layers for stack in (placed.text, placed.decoder) if stack)
    bottom = (_TOP if placed.decoder else _TOP - 16) + tallest * _ROW
    marks = list(_row_names(placed.text, bottom))
    right = _draw(marks, placed.text, _LABEL, bottom, "encoder" if placed.decoder else "")
    if placed.decoder:
        right = _draw(marks, placed.decoder, right + _GAP + 8, bottom, "decoder")
    return drawing(title, right + 8, bottom + 62, marks)


def _row_names(stack: Stack, bottom: float) -> Iterator[str]:
    for layer in range(stack.layers):
        yield words(0, bottom - layer * _ROW - 8, f"layer {layer + 1}", "muted")
    yield words(0, bottom + _ROW - 5, "input", "muted")


def _draw(marks: list[str], stack: Stack, left: float, bottom: float, name: str) -> float:
    """Add the marks of a stack and return its right edge."""
    longest = {kind: max(lengths, default=0) for kind, lengths in stack.prefixes.items()}
    before = sum(count * _PREFIX + 10 for count in longest.values() if count)
    start = left + before
    right = start + len(stack.tokens) * _CELL
    if name:
        marks.append(words(start, 14, name, "muted bold"))
    marks += _prefixes(stack, left, bottom)
    for layer in range(stack.layers):
        marks += _layer(stack, layer, start, bottom - (layer + 1) * _ROW)
    marks += _input(stack, start, bottom)
    marks += _reads(stack, start, bottom - stack.layers * _ROW)
    return right + (22 if any(stack.maps) else 0)


def _prefixes(stack: Stack, left: float, bottom: float) -> Iterator[str]:
    for kind, lengths in stack.prefixes.items():
        if not any(lengths):
            continue
        for layer, count in enumerate(lengths):
            y = bottom - (layer + 1) * _ROW
            for column in range(count):
                yield _solid(left + column * _PREFIX, y + 2, _PREFIX - 3, _ROW - 5)
        text = "keys, values" if kind == "self" else kind
        yield words(left, bottom + _ROW + 16, text, "paper", size=9)
        left += max(lengths) * _PREFIX + 10


def _layer(stack: Stack, layer: int, start: float, y: float) -> Iterator[str]:
    for column in range(len(stack.tokens)):
        x = start + column * _CELL
        yield box(x, y + 2, _CELL - 4, _ROW - 5, "paper" if stack.tuned else "grid")
        if column in stack.edited[layer]:
            yield _solid(x + 13, y + 5, _CELL - 30, _ROW - 11)
    width = len(stack.tokens) * _CELL - 4
    for number in range(stack.inside[layer]):
        yield _solid(start, y + 8 + 7 * number, width, 3)
    if stack.maps[layer]:
        yield _solid(start + width + 4, y + 3, 6, _ROW - 7)
        yield _solid(start + width + 13, y + 3, 6, _ROW - 7)


def _input(stack: Stack, start: float, y: float) -> Iterator[str]:
    for column, token in enumerate(stack.tokens):
        x = start + column * _CELL
        if column in stack.learned:
            yield _solid(x, y + 6, _CELL - 4, _ROW - 8)
        else:
            yield box(x, y + 6, _CELL - 4, _ROW - 8, "paper" if stack.tuned else "grid")
            middle, below = x + _CELL / 2 - 2, y + _ROW + 16
            yield words(middle, below, _short(token), anchor="middle", size=9.5)


def _reads(stack: Stack, start: float, y: float) -> Iterator[str]:
    for column in stack.read:
        yield arrow(start + column * _CELL + _CELL / 2 - 2, y, 14, "s0")
    if stack.read:
        beside = start + stack.read[0] * _CELL + _CELL / 2 + 6
        yield words(beside, y - 9, "read", "s0", size=9.5)


def _solid(x: float, y: float, width: float, height: float) -> str:
    return box(x, y, width, height, "paper full")


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…"
