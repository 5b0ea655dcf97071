"""The drawings of the page's details: a row's seeds and training curves, and a claim's seeds."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ptrun.ledger.ours import Ours
from ptrun.ledger.plots import SERIES, Canvas, Dot, Path, Scale, Words, dots, scale, ticks, tidy
from ptrun.ledger.shown import ShownRow

_WIDTH, _LANE = 416.0, 34.0
Curve = Sequence[tuple[int, float]]


def by_seed(runs: Mapping[str, Ours], line: ShownRow) -> Canvas:
    """Return a lane for each protocol with a dot for each seed, and a line at the paper's number.

    Args:
        runs: our runs by protocol.
        line: their row.
    """
    canvas = Canvas("Scores by seed", _WIDTH, _LANE * len(runs) + 40)
    printed, bottom = line.row.cell.number, canvas.height - 32
    values = [score for ours in runs.values() for score in ours.scores.values()]
    along = scale([*values, *([] if printed is None else [printed])], 60, _WIDTH - 12)
    for value in ticks(along):
        canvas.add(Path([(along(value), 8), (along(value), bottom)], "grid"))
        canvas.add(Words((along(value), bottom + 14), tidy(value), "muted", "middle"))
    if printed is not None:
        x, text = along(printed), f"the paper\N{RIGHT SINGLE QUOTATION MARK}s {line.paper}"
        canvas.add(Path([(x, 4), (x, bottom)], "paper", 1.5))
        canvas.add(Words((x, canvas.height - 3), text, "paper", "middle"))
    for lane, (name, ours) in enumerate(runs.items()):
        _lane(canvas, name, ours, along, 24 + _LANE * lane)
    return canvas


def _lane(canvas: Canvas, name: str, ours: Ours, along: Scale, y: float) -> None:
    canvas.add(Words((0, y + 4), name))
    canvas.add(*dots(ours, [(along(score), y) for score in ours.scores.values()], "s0", 4))
    canvas.add(Path([(along(ours.value), y - 9), (along(ours.value), y + 9)], "ink", 2))


def training(history: Mapping[int, Curve]) -> Canvas:
    """Return the dev score by step, a line for each seed; one point is a dot."""
    canvas = Canvas("Dev score by step", _WIDTH, 190)
    points = [point for curve in history.values() for point in curve]
    along = scale([step for step, _ in points], 44, _WIDTH - 12)
    up = scale([score for _, score in points], 162, 8)
    for value in ticks(up, 4):
        canvas.add(Path([(44, up(value)), (_WIDTH - 12, up(value))], "grid"))
        canvas.add(Words((38, up(value) + 4), tidy(value), "muted", "end"))
    for value in ticks(along, 4):
        if value >= 0:
            canvas.add(Words((along(value), 182), f"{value:,g}", "muted", "middle"))
    for index, (seed, curve) in enumerate(history.items()):
        role, title = SERIES[index % len(SERIES)], f"seed {seed}"
        line = [(along(step), up(score)) for step, score in curve]
        several = Path(line, role, 1.5, title=title)
        canvas.add(several if len(line) > 1 else Dot(line[0], 3, role, title=title))
    return canvas


def of_claim(claim: Mapping[str, Any]) -> Canvas:
    """Return a dot for each seed: the first method above, the second below, with their means."""
    scores: Sequence[Sequence[float]] = claim["scores"]
    title = f"{claim['first']} above, {claim['second']} below: test scores by seed"
    canvas = Canvas(title, 160, 34)
    along = scale([score for own in scores for score in own], 8, 152)
    for lane, own in enumerate(scores):
        y, middle = 10.0 + 14 * lane, along(fmean(own))
        canvas.add(Path([(8, y), (152, y)], "grid"))
        for seed, score in zip(claim["seeds"], own, strict=True):
            told = f"seed {seed}: {score:.2f}"
            canvas.add(Dot((along(score), y), 3, SERIES[lane], title=told))
        canvas.add(Path([(middle, y - 6), (middle, y + 6)], "ink", 1.5))
    return canvas
