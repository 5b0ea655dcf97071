"""The charts of a table, drawn by matplotlib: `pip install 'ptrun[figures]'`."""

import importlib.util
import io
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import nan
from typing import TYPE_CHECKING, Any

from ptrun.papers.rows import LedgerRow
from ptrun.papers.shown import Shown
from ptrun.reporting.cells import grouped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GROUND, INK, MUTED, GRID, PAPER = "#fdfcfa", "#22211f", "#68655e", "#e3dfd6", "#b3402a"
SERIES = ("#1f5fa8", "#a05a00", "#1b7a5a", "#7b4fa3", "#b03a6f", "#4f6b12", "#0f7588", "#6d5a4c")
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GRID,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.titlelocation": "left",
    "figure.facecolor": GROUND,
    "font.size": 8,
    "grid.color": GRID,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "ptrun",  # the same drawing has the same bytes
    "text.color": INK,
    "text.parse_math": False,
}
_WIDTH, _LANE, _CURVES = 6.7, 0.23, 2.0  # inches


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
        if any(row.ours for row in table.rows):
            drawn["seeds"] = _seeds(table)
        if table.experiment.curve not in (None, "method") and any(map(_drawn, table.rows)):
            drawn["curves"] = _curves(table)
    return drawn


def panels(
    title: str, heights: Mapping[str, float], width: float = _WIDTH
) -> tuple["Figure", list["Axes"]]:
    """Return a drawing of panels below each other; `heights` in inches are by their titles."""
    from matplotlib.figure import Figure

    inches = list(heights.values())
    figure = Figure((width, 0.8 + sum(inches) + 0.5 * len(inches)), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", size=10, weight="bold")
    axes = list(figure.subplots(len(inches), squeeze=False, height_ratios=inches)[:, 0])
    for panel, name in zip(axes, heights, strict=True):
        panel.set_title(name)
    return figure, axes


def legend(figure: "Figure", handles: Sequence[Any], labels: Sequence[str]) -> None:
    """Name the kinds of marks below the panels."""
    form: dict[str, Any] = {"labelcolor": MUTED, "borderpad": 0, "handlelength": 1.5, "ncols": 4}
    figure.legend(handles, labels, loc="outside lower left", **form)


def svg(figure: "Figure", title: str) -> str:
    """Return a drawing as SVG."""
    text = io.StringIO()
    with styled():
        figure.savefig(text, format="svg", metadata={"Title": title, "Date": None})
    return text.getvalue()


def _seeds(table: Shown) -> "Figure":
    """Draw a lane for each row that ran: its seeds beside the paper's number."""
    apart = [axis for axis in table.axes if axis in ("setting", "task", "metric")]
    within = [axis for axis in table.axes if axis not in apart]
    if not within:
        apart, within = [], apart
    groups = grouped((row for row in table.rows if row.ours), lambda row: _named(row, apart))
    heights = {name: _LANE * len(rows) for name, rows in groups.items()}
    figure, all_axes = panels(f"{table.heading}, by seed", heights)
    dots: dict[str, Any] = {"ms": 4.5, "mec": "none", "alpha": 0.62, "label": "a seed"}
    for axes, rows in zip(all_axes, groups.values(), strict=True):
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_yticks(range(len(rows)), [_cut(_named(row, within)) for row in rows])
        axes.grid(visible=False, axis="y")
        for lane, row in enumerate(rows):
            ours, printed = row.ours, row.cell.number
            assert ours
            axes.plot([*ours.scores.values()], [lane] * len(ours.scores), "o", c=SERIES[0], **dots)
            label = "reported statistic of the seeds"
            axes.plot([ours.value], [lane], "|", color=INK, ms=11, mew=1.5, label=label)
            if printed is not None:
                axes.plot([printed], [lane], "D", color=PAPER, ms=5, label="paper")
    handles, labels = all_axes[0].get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    legend(figure, list(by_label.values()), list(by_label))
    return figure


def _curves(table: Shown) -> "Figure":
    """Draw scores over the axis of a figure: the paper's dashed, ours solid with its seeds."""
    axis = table.experiment.curve
    assert axis
    free = [name for name in ("method", "backbone") if name != axis]
    by = next((name for name in free if name in table.axes), free[0])
    names = dict.fromkeys(row.cell.at[by] for row in table.rows)
    colours = {name: SERIES[index % len(SERIES)] for index, name in enumerate(names)}
    every_step = dict.fromkeys(row.cell.at[axis] for row in table.rows)
    rest = [name for name in table.axes if name not in (axis, by)]
    groups = grouped(filter(_drawn, table.rows), lambda row: _named(row, rest))
    figure, all_axes = panels(f"{table.heading}, over {axis}", dict.fromkeys(groups, _CURVES))
    for axes, rows in zip(all_axes, groups.values(), strict=True):
        present = {row.cell.at[axis] for row in rows}
        steps = [step for step in every_step if step in present]
        for name, series in grouped(rows, lambda row: row.cell.at[by]).items():
            _series(axes, {row.cell.at[axis]: row for row in series}, steps, colours[name])
        axes.set_xticks(range(len(steps)), [_cut(step, 22) for step in steps])
        axes.tick_params(axis="x", labelrotation=20 if len(steps) > 8 else 0)
    handles = [all_axes[0].plot([], [], color=colour)[0] for colour in colours.values()]
    handles += all_axes[0].plot([], [], "--o", color=MUTED, mfc="none")
    handles += all_axes[0].plot([], [], "-o", color=MUTED, ms=3)
    legend(figure, handles, [*colours, "paper", "ours, a dot for each seed"])
    return figure


def _series(axes: "Axes", rows: Mapping[str, LedgerRow], steps: Sequence[str], colour: str) -> None:
    """Draw one method; a line does not cross a missing point."""
    printed, means = [nan] * len(steps), [nan] * len(steps)
    for x, step in enumerate(steps):
        if row := rows.get(step):
            printed[x] = nan if row.cell.number is None else row.cell.number
            if row.ours:
                means[x] = row.ours.value
                scores = list(row.ours.scores.values())
                axes.plot([x] * len(scores), scores, "o", color=colour, ms=3, alpha=0.62)
    axes.plot(printed, "--o", color=colour, lw=1.1, mfc="none", ms=4.5)
    axes.plot(means, color=colour, lw=1.5)


def _drawn(row: LedgerRow) -> bool:
    """Return whether a row has a point on a curve."""
    return row.ours is not None or row.cell.number is not None


def _named(row: LedgerRow, axes: Sequence[str]) -> str:
    return " · ".join(name for axis, name in row.cell.place.items() if axis in axes)


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
