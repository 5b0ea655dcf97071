"""A drawing as PNG, if matplotlib is installed: `pip install 'ptrun[figures]'`."""

import importlib.util
from pathlib import Path as File
from typing import Any

from ptrun.drawing.canvas import Box, Canvas, Dot, Mark, Path
from ptrun.drawing.svg import GROUND, LIGHT
from ptrun.files import drafted

_DPI = 200
_POINTS = 72 / 96  # points in a pixel
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def possible() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write(canvas: Canvas, file: File) -> None:
    """Write a drawing in light colours at twice the resolution of a screen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(canvas.width / 96, canvas.height / 96), facecolor=GROUND[0])
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, canvas.width), ylim=(canvas.height, 0))
    axes.set_axis_off()
    for depth, mark in enumerate(canvas.marks):
        _draw(axes, mark, depth)
    with drafted(file) as target:
        figure.savefig(target, dpi=_DPI, format="png")


def _draw(axes, mark: Mark, depth: int) -> None:  # type: ignore[no-untyped-def]
    from matplotlib import patches

    colour, style = LIGHT[mark.role], dict[str, Any](zorder=depth)
    if isinstance(mark, Path):
        xs, ys = zip(*mark.points, strict=True)
        if mark.filled:
            axes.fill(xs, ys, color=colour, **style)
        else:
            line, width = "--" if mark.dashed else "-", mark.width * _POINTS
            axes.plot(xs, ys, color=colour, lw=width, ls=line, **style)
    elif isinstance(mark, Dot):
        style |= {"fill": False} if mark.hollow else {"alpha": 0.62, "lw": 0}
        axes.add_artist(patches.Circle(mark.at, mark.radius, color=colour, **style))
    elif isinstance(mark, Box):
        style |= {"fc": f"{colour}1f", "ec": colour, "lw": 0.75}
        axes.add_artist(patches.Rectangle(mark.at, *mark.size, **style))
    else:
        style |= {"ha": _ANCHORS[mark.anchor], "weight": "bold" if mark.bold else "normal"}
        style |= {"va": "baseline", "size": mark.size * _POINTS}
        axes.text(*mark.at, mark.text.replace("$", r"\$"), color=colour, **style)
