"""The charts of a table, drawn by matplotlib: `pip install 'ptrun[figures]'`."""

import importlib.util
import io
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import ceil, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.files import drafted
from ptrun.ledger.cells import grouped
from ptrun.ledger.experiment import AXES
from ptrun.ledger.ours import Ours
from ptrun.ledger.shown import Shown, ShownRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DARK = {  # each colour of a drawing, and what a dark screen has instead
    "#fdfcfa": "#1c1b19",
    "#22211f": "#ece9e2",
    "#68655e": "#a5a198",
    "#e3dfd6": "#3a3935",
    "#b3402a": "#ff9079",
    "#1f5fa8": "#7db4f5",
    "#a05a00": "#e8ab55",
    "#1b7a5a": "#6fcfa8",
    "#7b4fa3": "#c3a1ea",
    "#b03a6f": "#f090bd",
    "#4f6b12": "#b4cc72",
    "#0f7588": "#6fcbdc",
    "#6d5a4c": "#c9b6a6",
}
GROUND, INK, MUTED, GRID, PAPER, *SERIES = _DARK
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "figure.facecolor": GROUND,
    "font.size": 8,
    "grid.color": GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ptrun",  # the same drawing has the same bytes
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
}
_WIDTH, _LEFT, _EDGE = 6.7, 2.0, 0.2  # inches
_LANE, _CURVES = 0.23, 2.0  # heights
_ENTRIES = 4  # in a line of a legend
_BOXED = 5  # seeds of a box


def possible() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def styled() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws as the page does."""
    import matplotlib

    return matplotlib.rc_context(_STYLE)  # type: ignore[arg-type]


def charts(table: Shown) -> dict[str, "Figure"]:
    """Return the charts of a table by name: `seeds` if any ran, and `curves` of a figure.

    A figure over methods has no curve, because methods have no order.
    """
    drawn = {}
    with styled():
        if any(map(_ran, table.lines)):
            drawn["seeds"] = _seeds(table)
        if table.experiment.curve not in (None, "method") and any(map(_values, table.lines)):
            drawn["curves"] = _curves(table)
    return drawn


def panels(
    title: str,
    heights: Mapping[str, float],
    *,
    left: float = _LEFT,
    width: float = _WIDTH,
    entries: int = 3,
) -> tuple["Figure", list["Axes"]]:
    """Return a drawing of panels below each other, with the title and room for a legend above.

    Args:
        title: the title of the drawing.
        heights: the inches of each panel, by its title.
        left: the inches on the left of a panel.
        width: the inches of the drawing.
        entries: the entries of the legend.
    """
    from matplotlib.figure import Figure

    above, below, between = 0.45 + 0.16 * ceil(entries / _ENTRIES), 0.1, 0.55
    height = above + below + sum(heights.values()) + between * len(heights)
    figure = Figure(figsize=(width, height))
    figure.text(_EDGE / width, 1 - 0.28 / height, title, size=10, weight="bold")
    axes, top = [], height - above
    for name, inches in heights.items():
        top -= inches + between
        box = (left / width, (top + 0.25) / height, 1 - (left + _EDGE) / width, inches / height)
        axes.append(figure.add_axes(box, title=name))
    return figure, axes


def svg(figure: "Figure", title: str) -> str:
    """Return a drawing as SVG; it is light or dark as the reader's screen is."""
    text = io.StringIO()
    with styled():
        figure.savefig(text, format="svg", metadata={"Title": title, "Date": None})
    rules = "".join(
        f'[style*="{use}: {light}"]{{{use}:{dark}!important}}'
        for light, dark in _DARK.items()
        for use in ("fill", "stroke")
    )
    style = f"<style>@media(prefers-color-scheme:dark){{{rules}}}</style>\n <metadata>"
    return text.getvalue().replace("<metadata>", style, 1)


def write_png(figure: "Figure", file: Path) -> None:
    """Write a drawing in light colours at twice the resolution of a screen."""
    with drafted(file) as target:
        figure.savefig(target, dpi=200, format="png")


def _seeds(table: Shown) -> "Figure":
    """Draw a lane for each row that ran: its seeds beside the paper's number."""
    apart = tuple(axis for axis in ("setting", "task", "metric") if axis in table.axes)
    within = tuple(axis for axis in table.axes if axis not in apart)
    if not within:
        apart, within = (), apart
    groups = grouped(filter(_ran, table.lines), lambda line: _named(line, apart))
    heights = {name: _LANE * len(lines) for name, lines in groups.items()}
    figure, all_axes = panels(f"{table.heading}, by seed", heights)
    for axes, lines in zip(all_axes, groups.values(), strict=True):
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_yticks(range(len(lines)), [_cut(_named(line, within)) for line in lines])
        axes.grid(visible=False, axis="y")
        for lane, line in enumerate(lines):
            _lane(axes, line, lane)
    handles, labels = all_axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    legend(figure, list(by_label.values()), list(by_label))
    return figure


def _lane(axes: "Axes", line: ShownRow, lane: int) -> None:
    ours, printed = _ran(line), line.row.cell.number
    assert ours
    scores = sorted(ours.scores.values())
    if len(scores) >= _BOXED:
        low, middle, high = statistics.quantiles(scores, n=4, method="inclusive")
        axes.hlines(lane, scores[0], scores[-1], color=SERIES[0], lw=0.8)
        axes.barh(lane, high - low, 0.5, low, color=f"{SERIES[0]}30", edgecolor=SERIES[0], lw=0.8)
        axes.vlines(middle, lane - 0.25, lane + 0.25, color=SERIES[0])
    dots: dict[str, Any] = {"ms": 4.5, "mec": "none", "alpha": 0.62, "label": "a seed"}
    axes.plot(scores, [lane] * len(scores), "o", color=SERIES[0], **dots)
    label = "reported statistic of the seeds"
    axes.plot([ours.value], [lane], "|", color=INK, ms=11, mew=1.5, label=label)
    if printed is not None:
        axes.plot([printed], [lane], "D", color=PAPER, ms=5, label="paper")


def _curves(table: Shown) -> "Figure":
    """Draw scores over the axis of a figure: the paper's dashed, ours solid with its seeds."""
    axis = table.experiment.curve
    assert axis
    free = [name for name in ("method", "backbone") if name != axis]
    by = next((name for name in free if name in table.axes), free[0])
    names = dict.fromkeys(line.row.cell.at[by] for line in table.lines)
    colours = {name: SERIES[index % len(SERIES)] for index, name in enumerate(names)}
    every_step = dict.fromkeys(line.row.cell.at[axis] for line in table.lines)
    rest = tuple(name for name in table.axes if name not in (axis, by))
    groups = grouped(filter(_values, table.lines), lambda line: _named(line, rest))
    heights = dict.fromkeys(groups, _CURVES)
    figure, all_axes = panels(
        f"{table.heading}, over {axis}", heights, left=0.7, entries=len(colours) + 2
    )
    for axes, lines in zip(all_axes, groups.values(), strict=True):
        present = {line.row.cell.at[axis] for line in lines}
        steps = [step for step in every_step if step in present]
        for name, series in grouped(lines, lambda line: line.row.cell.at[by]).items():
            _series(axes, {line.row.cell.at[axis]: line for line in series}, steps, colours[name])
        axes.set_xticks(range(len(steps)), [_cut(step, 22) for step in steps])
        axes.tick_params(axis="x", labelrotation=20 if len(steps) > 8 else 0)
    handles = [all_axes[0].plot([], [], color=colour)[0] for colour in colours.values()]
    handles += all_axes[0].plot([], [], "--o", color=MUTED, mfc="none")
    handles += all_axes[0].plot([], [], "-o", color=MUTED, ms=3)
    legend(figure, handles, [*colours, "paper", "ours, a dot for each seed"])
    return figure


def _series(axes: "Axes", lines: Mapping[str, ShownRow], steps: Sequence[str], colour: str) -> None:
    """Draw one method; a line does not cross a missing point."""
    printed, means = [nan] * len(steps), [nan] * len(steps)
    for x, step in enumerate(steps):
        if line := lines.get(step):
            number, ours = line.row.cell.number, _ran(line)
            printed[x] = nan if number is None else number
            if ours:
                means[x] = ours.value
                scores = list(ours.scores.values())
                axes.plot([x] * len(scores), scores, "o", color=colour, ms=3, alpha=0.62)
    axes.plot(printed, "--o", color=colour, lw=1.1, mfc="none", ms=4.5)
    axes.plot(means, color=colour, lw=1.5)


def legend(figure: "Figure", handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Name the kinds of marks below the title."""
    corner = (_EDGE / figure.get_figwidth(), 1 - 0.35 / figure.get_figheight())
    form: dict[str, Any] = {"labelcolor": MUTED, "borderpad": 0, "handlelength": 1.5}
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=corner, ncols=_ENTRIES, **form)


def _ran(line: ShownRow) -> Ours | None:
    return line.row.paper or line.row.honest


def _values(line: ShownRow) -> list[float]:
    """Return the scores of all seeds and the printed number."""
    ours, printed = _ran(line), line.row.cell.number
    return [*(ours.scores.values() if ours else ()), *([] if printed is None else [printed])]


def _named(line: ShownRow, axes: Sequence[str]) -> str:
    at: Mapping[str, str] = {**line.row.cell.at, "metric": line.row.cell.metric}
    return " · ".join(at[axis] for axis in (*AXES, "metric") if axis in axes)


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
