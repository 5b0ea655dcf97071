"""Draws a placement: positions from left to right, layers from bottom to top."""

from collections.abc import Iterator

from placement import Placement, Stack

from ptrun.ledger import plots
from ptrun.ledger.plots import Box, Canvas, Mark, Path, Words

_CELL, _PREFIX, _ROW = 50.0, 15.0, 24.0
_LABEL, _TOP, _GAP = 64.0, 44.0, 34.0
_LONGEST = 8  # letters of a token that fit into a cell


def picture(placed: Placement, title: str) -> str:
    """Return the drawing of a placement as SVG for a page."""
    canvas = Canvas(title)
    tallest = max(stack.layers for stack in (placed.text, placed.decoder) if stack)
    bottom = (_TOP if placed.decoder else _TOP - 16) + tallest * _ROW
    right = _draw(canvas, placed.text, _LABEL, bottom, "encoder" if placed.decoder else "")
    if placed.decoder:
        right = _draw(canvas, placed.decoder, right + _GAP + 8, bottom, "decoder")
    canvas.width, canvas.height = right + 8, bottom + 62
    canvas.add(*_row_names(placed.text, bottom))
    return plots.inside(canvas)


def _row_names(stack: Stack, bottom: float) -> Iterator[Mark]:
    for layer in range(stack.layers):
        yield Words((0, bottom - layer * _ROW - 8), f"layer {layer + 1}", "muted")
    yield Words((0, bottom + _ROW - 5), "input", "muted")


def _draw(canvas: Canvas, stack: Stack, left: float, bottom: float, name: str) -> float:
    """Draw a stack and return its right edge."""
    longest = {kind: max(lengths, default=0) for kind, lengths in stack.prefixes.items()}
    before = sum(count * _PREFIX + 10 for count in longest.values() if count)
    start = left + before
    right = start + len(stack.tokens) * _CELL
    if name:
        canvas.add(Words((start, 14), name, "muted", bold=True))
    canvas.add(*_prefixes(stack, left, bottom))
    for layer in range(stack.layers):
        canvas.add(*_layer(stack, layer, start, bottom - (layer + 1) * _ROW))
    canvas.add(*_input(stack, start, bottom))
    canvas.add(*_reads(stack, start, bottom - stack.layers * _ROW))
    return right + (22 if any(stack.maps) else 0)


def _prefixes(stack: Stack, left: float, bottom: float) -> Iterator[Mark]:
    for kind, lengths in stack.prefixes.items():
        if not any(lengths):
            continue
        for layer, count in enumerate(lengths):
            y = bottom - (layer + 1) * _ROW
            for column in range(count):
                yield _solid(left + column * _PREFIX, y + 2, _PREFIX - 3, _ROW - 5)
        text = "keys, values" if kind == "self" else kind
        yield Words((left, bottom + _ROW + 16), text, "paper", size=9)
        left += max(lengths) * _PREFIX + 10


def _layer(stack: Stack, layer: int, start: float, y: float) -> Iterator[Mark]:
    for column in range(len(stack.tokens)):
        x = start + column * _CELL
        yield Box((x, y + 2), (_CELL - 4, _ROW - 5), "paper" if stack.tuned else "grid")
        if column in stack.edited[layer]:
            yield _solid(x + 13, y + 5, _CELL - 30, _ROW - 11)
    width = len(stack.tokens) * _CELL - 4
    for number in range(stack.inside[layer]):
        yield _solid(start, y + 8 + 7 * number, width, 3)
    if stack.maps[layer]:
        yield _solid(start + width + 4, y + 3, 6, _ROW - 7)
        yield _solid(start + width + 13, y + 3, 6, _ROW - 7)


def _input(stack: Stack, start: float, y: float) -> Iterator[Mark]:
    for column, token in enumerate(stack.tokens):
        x = start + column * _CELL
        if column in stack.learned:
            yield _solid(x, y + 6, _CELL - 4, _ROW - 8)
        else:
            yield Box((x, y + 6), (_CELL - 4, _ROW - 8), "paper" if stack.tuned else "grid")
            yield Words(
                (x + _CELL / 2 - 2, y + _ROW + 16), _short(token), anchor="middle", size=9.5
            )


def _reads(stack: Stack, start: float, y: float) -> Iterator[Mark]:
    for column in stack.read:
        x = start + column * _CELL + _CELL / 2 - 2
        yield Path([(x, y), (x, y - 14)], "s0", 2)
        yield Path([(x - 4, y - 13), (x + 4, y - 13), (x, y - 20)], "s0", filled=True)
    if stack.read:
        yield Words((start + stack.read[0] * _CELL + _CELL / 2 + 6, y - 9), "read", "s0", size=9.5)


def _solid(x: float, y: float, width: float, height: float) -> Path:
    corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
    return Path(corners, "paper", filled=True)


def _short(token: str) -> str:
    return token if len(token) <= _LONGEST else f"{token[: _LONGEST - 1]}…"
