"""The pictures of `claims_real.py`: the difference of each claim, and the scores of each row."""

from headlines import Headline, judged

from ptrun.papers.charts import MUTED, PAPER, SERIES, panels, styled, svg

VERDICTS = {"holds": SERIES[2], "DOES NOT HOLD": PAPER}
_LANE = 0.2  # inches


def differences(claims: list[tuple[Headline, dict, dict]]) -> str:
    """Return a lane for each claim: a dot for each seed's difference, and a line for the interval.

    Colours are those of the verdicts: holds, does not hold, undecided.
    """
    title = "The second row minus the first in points, a dot for each seed"
    with styled():
        heights = {"": _LANE * max(1, len(claims))}
        figure, (axes,) = panels(title, heights, width=9)
        names = []
        for lane, (headline, first, second) in enumerate(claims):
            apart, gap, here = judged(headline, first, second)
            colour = VERDICTS.get(here, MUTED)
            axes.hlines(lane, gap.low, gap.high, color=colour, lw=1.5)
            axes.plot(apart, [lane] * len(apart), "o", color=colour, ms=4, alpha=0.62)
            names.append(f"{headline.paper.partition(',')[0]}: {headline.says}")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=MUTED, lw=0.8)
        return svg(figure, title)


def scores(stored: list[dict]) -> str:
    """Return a panel for each task, a lane for each row and a dot for each seed."""
    by_task: dict[str, list[dict]] = {}
    for row in stored:
        by_task.setdefault(row["claim"], []).append(row)
    title = "Test scores on real weights, a dot for each seed"
    with styled():
        heights = {task: _LANE * len(rows) for task, rows in by_task.items()}
        figure, all_axes = panels(title, heights)
        for axes, rows in zip(all_axes, by_task.values(), strict=True):
            for lane, row in enumerate(rows):
                colour = SERIES[lane % len(SERIES)]
                axes.plot(row["test"], [lane] * len(row["test"]), "o", color=colour, alpha=0.62)
            axes.set_yticks(range(len(rows)), [row["row"] for row in rows])
            axes.set_ylim(len(rows) - 0.5, -0.5)
            axes.set_xlim(0, 100)
        return svg(figure, title)
