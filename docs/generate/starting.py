"""Draws the values with which a prompt begins, as a run sets them."""

from html import escape

import torch
from drawing import dot, drawing, words
from text import figure

from ptrun.config.compose import compose_run
from ptrun.method.base import built
from ptrun.start.spec import parse
from ptrun.start.start import begin

_OVERRIDES = ("task=pocket_sentiment", "method=prompt_tuning", "method.length=4")
_NUMBERS, _STEP, _LEFT, _WIDEST = 32, 17.0, 56.0, 7.5


def start(value: str) -> str:
    """Return a picture of four vectors that begin as `start=VALUE` says."""
    composed = compose_run([*_OVERRIDES, "readout=verbalizer"])
    made = composed.components()
    torch.manual_seed(1)
    backbone, task = made["backbone"].build(), made["task"].build(None, None)
    backbone.load()
    method = built(made["method"], composed.readout, backbone, task)
    method.placed()
    rows = lambda own, split: own.encode(task.load(split)[:200])  # noqa: E731
    begin(parse(value), {"": method}, {}, 1, rows, {})
    drawn = _picture(method.prompt.vectors().detach(), value)  # type: ignore[operator,union-attr]
    return figure(drawn, f"<code>start={escape(value)}</code>")


def _picture(vectors: torch.Tensor, value: str) -> str:
    """Draw the first numbers of each vector: the size of a dot is theirs, red is below zero."""
    shown = vectors[:, :_NUMBERS]
    most = float(shown.abs().max())
    marks = []
    for row, numbers in enumerate(shown.tolist()):
        y = 12 + row * _STEP
        marks.append(words(0, y + 4, f"vector {row + 1}", "muted"))
        for column, number in enumerate(numbers):
            radius = max(0.6, _WIDEST * (abs(number) / most) ** 0.5)
            x = _LEFT + 10 + column * _STEP
            marks.append(dot(x, y, radius, "paper" if number < 0 else "s0"))
    title = f"Four vectors that begin as start={value} says"
    return drawing(title, _LEFT + _NUMBERS * _STEP + 4, len(vectors) * _STEP + 8, marks)
