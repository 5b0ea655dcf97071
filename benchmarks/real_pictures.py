"""The pictures of `claims_real.py`: the difference of each claim, and the scores of each row."""

from headlines import Headline, judged

from ptrun.ledger.plots import SERIES, Canvas, Dot, Scale, Words, tidy
from ptrun.ledger.plots import Path as Line

VERDICTS = {"holds": "s2", "DOES NOT HOLD": "paper"}


def differences(claims: list[tuple[Headline, dict, dict]]) -> Canvas:
    """Return a strip for each claim: a dot for each seed's difference, and a line for the interval.

    Colours are those of the verdicts: holds, does not hold, undecided.
    """
    step, height = 18.0, 40.0 + 18.0 * len(claims)
    title = "The second row minus the first in points, a dot for each seed"
    canvas = Canvas(title, width=820.0, height=height)
    found = [judged(*one) for one in claims]
    ends = [value for apart, gap, _ in found for value in (*apart, gap.low, gap.high)]
    x = Scale(min(ends, default=-1.0) - 1, max(ends, default=1.0) + 1, 390.0, 810.0)
    for tick in range(int(x.low // 10) * 10 + 10, int(x.high) + 1, 10):
        canvas.add(Line([(x(tick), 24.0), (x(tick), height)], "grid" if tick else "muted"))
        canvas.add(Words((x(tick), 18), tidy(tick), "muted", anchor="middle"))
    for index, ((headline, *_), (apart, gap, here)) in enumerate(zip(claims, found, strict=True)):
        y, role = 36.0 + step * index, VERDICTS.get(here, "muted")
        words = f"{headline.paper.partition(',')[0]}: {headline.says}"
        canvas.add(Words((4, y + 4), words, role, size=10.0))
        canvas.add(Line([(x(gap.low), y), (x(gap.high), y)], role, 2.0))
        dots = [Dot((x(value), y), 3.0, role, title=f"{value:+.2f}") for value in apart]
        canvas.add(*dots)
    return canvas


def scores(stored: list[dict]) -> Canvas:
    """Return a strip of dots for each row, a dot for each seed, by task."""
    left, width, step = 190.0, 480.0, 16.0
    tasks = list(dict.fromkeys(one["claim"] for one in stored))
    height = 40.0 + step * len(stored) + 22.0 * len(tasks)
    canvas = Canvas("Test scores on real weights, a dot for each seed", height=height)
    for tick in range(0, 101, 20):
        x = left + width * tick / 100
        canvas.add(Line([(x, 24.0), (x, height)], "grid"))
        canvas.add(Words((x, 18), str(tick), "muted", anchor="middle"))
    y = 30.0
    for task in tasks:
        canvas.add(Words((4, y + 12), task, bold=True))
        y += 22.0
        for index, one in enumerate(own for own in stored if own["claim"] == task):
            canvas.add(Words((left - 8, y + 4), one["row"], anchor="end"))
            for seed, score in zip(one["seeds"], one["test"], strict=True):
                at = (left + width * score / 100, y)
                title = f"{one['row']}, seed {seed}: {score:.2f}"
                canvas.add(Dot(at, 4.0, SERIES[index % len(SERIES)], title=title))
            y += step
    return canvas
