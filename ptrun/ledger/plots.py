"""The drawings of a table: the seeds of its cells, and the curves of a figure."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ptrun.drawing.canvas import (
    SERIES,
    Box,
    Canvas,
    Dot,
    Path,
    Point,
    Role,
    Scale,
    Words,
    scale,
    ticks,
    tidy,
)
from ptrun.ledger.cells import grouped
from ptrun.ledger.experiment import AXES
from ptrun.ledger.ours import Ours
from ptrun.ledger.shown import Line, Shown

_PAD, _LABEL, _LANE, _BOXED = 16.0, 190.0, 22.0, 5
_HIGH = 190.0


def plots(table: Shown) -> dict[str, Canvas]:
    """Return the drawings of a table by name: `seeds` if any ran, and `curves` of a figure.

    A figure over methods has no curve, because methods have no order.
    """
    found = {}
    if any(_ran(line) for line in table.lines):
        found["seeds"] = seeds(table)
    if table.experiment.curve not in (None, "method") and any(map(_values, table.lines)):
        found["curves"] = curves(table)
    return found


def seeds(table: Shown) -> Canvas:
    """Return a dot for the score of each seed, boxes from five seeds on, and the paper's number."""
    canvas = Canvas(f"{table.heading}: scores by seed beside the paper's")
    _title(canvas, f"{table.heading}, by seed")
    _seed_legend(canvas)
    apart = tuple(axis for axis in ("setting", "task", "metric") if axis in table.axes)
    within = tuple(axis for axis in table.axes if axis not in apart)
    if not within:
        apart, within = (), apart
    ran = filter(_ran, table.lines)
    for name, lines in grouped(ran, lambda line: _named(line, apart)).items():
        _seed_panel(canvas, name, lines, within)
    canvas.height += _PAD / 2
    return canvas


def curves(table: Shown) -> Canvas:
    """Return scores over the axis of a figure: the paper's dashed, ours solid with its seeds."""
    axis = table.experiment.curve
    assert axis
    free = [name for name in ("method", "backbone") if name != axis]
    by = next((name for name in free if name in table.axes), free[0])
    names = dict.fromkeys(line.row.cell.at[by] for line in table.lines)
    roles = {name: SERIES[index % len(SERIES)] for index, name in enumerate(names)}
    canvas = Canvas(f"{table.heading}: curves over {axis}")
    _title(canvas, f"{table.heading}, over {axis}")
    _curve_legend(canvas, roles)
    rest = tuple(name for name in table.axes if name not in (axis, by))
    steps = dict.fromkeys(line.row.cell.at[axis] for line in table.lines)
    for name, lines in grouped(table.lines, lambda line: _named(line, rest)).items():
        if not any(map(_values, lines)):
            continue
        series: dict[str, dict[str, Line]] = {}
        for line in lines:
            series.setdefault(line.row.cell.at[by], {})[line.row.cell.at[axis]] = line
        used = [step for step in steps if any(step in own for own in series.values())]
        _curve_panel(canvas, name, used, series, roles)
    canvas.height += _PAD / 2
    return canvas


def _ran(line: Line) -> Ours | None:
    return line.row.paper or line.row.honest


def _values(line: Line) -> list[float]:
    """Return the scores of all seeds and the printed number."""
    ours, printed = _ran(line), line.row.cell.number
    return [*(ours.scores.values() if ours else ()), *([] if printed is None else [printed])]


def _named(line: Line, axes: Sequence[str]) -> str:
    at: Mapping[str, str] = {**line.row.cell.at, "metric": line.row.cell.metric}
    return " · ".join(at[axis] for axis in (*AXES, "metric") if axis in axes)


def _title(canvas: Canvas, text: str) -> None:
    canvas.height += _PAD + 14
    canvas.add(Words((_PAD, canvas.height), text, size=14, bold=True))
    canvas.height += 10


def _curve_legend(canvas: Canvas, roles: Mapping[str, Role]) -> None:
    x, right = _PAD, canvas.width - _PAD
    for index, (text, role) in enumerate(roles.items()):
        width = 30 + 6.4 * len(text)
        if index == 0 or x + width > right:
            canvas.height += 14
            x = _PAD
        y = canvas.height - 4
        canvas.add(Path([(x, y), (x + 14, y)], role, 2), Words((x + 19, canvas.height), text))
        x += width
    canvas.height += 18
    y = canvas.height - 4
    canvas.add(
        Path([(_PAD, y), (_PAD + 14, y)], "muted", 1.5, dashed=True),
        Words((_PAD + 19, canvas.height), "paper", "muted"),
        Path([(_PAD + 64, y), (_PAD + 78, y)], "muted", 2),
        Dot((_PAD + 71, y), 2.5, "muted"),
        Words((_PAD + 83, canvas.height), "ours, a dot for each seed", "muted"),
    )


def _seed_legend(canvas: Canvas) -> None:
    canvas.height += 14
    y = canvas.height - 4
    canvas.add(
        _diamond(_PAD + 5, y),
        Words((_PAD + 15, canvas.height), "paper", "muted"),
        Dot((_PAD + 66, y), 3.2, "s0"),
        Words((_PAD + 75, canvas.height), "a seed", "muted"),
        Path([(_PAD + 126, y - 6), (_PAD + 126, y + 6)], "ink", 2),
        Words((_PAD + 133, canvas.height), "reported statistic of the seeds", "muted"),
    )


def _diamond(x: float, y: float, half: float = 4.5) -> Path:
    points = [(x, y - half), (x + half, y), (x, y + half), (x - half, y)]
    return Path(points, "paper", filled=True)


def _seed_panel(canvas: Canvas, name: str, lines: Sequence[Line], within: Sequence[str]) -> None:
    top = canvas.height + 34
    bottom = top + _LANE * len(lines)
    canvas.add(Words((_PAD, top - 8), name, bold=True))
    along = scale([v for line in lines for v in _values(line)], _LABEL, canvas.width - _PAD)
    for value in ticks(along):
        x = along(value)
        canvas.add(Path([(x, top), (x, bottom)], "grid"))
        canvas.add(Words((x, bottom + 13), tidy(value), "muted", "middle", 10))
    for index, line in enumerate(lines):
        y = top + _LANE * (index + 0.5)
        canvas.add(Words((_LABEL - 10, y + 4), _cut(_named(line, within)), "ink", "end"))
        canvas.add(*_lane(line, along, y))
    canvas.height = bottom + 16


def _lane(line: Line, along: Scale, y: float) -> Iterator[Path | Box | Dot]:
    ours, printed = _ran(line), line.row.cell.number
    assert ours
    scores = sorted(ours.scores.values())
    if len(scores) >= _BOXED:
        low, middle, high = map(along, statistics.quantiles(scores, n=4, method="inclusive"))
        yield Path([(along(scores[0]), y), (along(scores[-1]), y)], "s0")
        yield Box((low, y - 6), (high - low, 12), "s0")
        yield Path([(middle, y - 6), (middle, y + 6)], "s0", 1.5)
    yield from dots(ours, [(along(score), y) for score in ours.scores.values()], "s0", 3.2)
    yield Path([(along(ours.value), y - 8), (along(ours.value), y + 8)], "ink", 2)
    if printed is not None:
        yield _diamond(along(printed), y)


def dots(ours: Ours, points: Sequence[Point], role: Role, radius: float) -> Iterator[Dot]:
    """Yield a dot for the score of each seed."""
    for point, (seed, score) in zip(points, ours.scores.items(), strict=True):
        yield Dot(point, radius, role, title=f"seed {seed}: {score:.2f}")


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _curve_panel(
    canvas: Canvas,
    name: str,
    steps: Sequence[str],
    series: Mapping[str, Mapping[str, Line]],
    roles: Mapping[str, Role],
) -> None:
    top, dense = canvas.height + 36, len(steps) > 8
    bottom = top + _HIGH
    canvas.add(Words((_PAD, top - 10), name, bold=True))
    values = [v for lines in series.values() for line in lines.values() for v in _values(line)]
    up = scale(values, bottom, top)
    along = Scale(-0.5, len(steps) - 0.5, _PAD + 34, canvas.width - _PAD)
    for value in ticks(up):
        canvas.add(Path([(along.start, up(value)), (along.end, up(value))], "grid"))
        canvas.add(Words((along.start - 6, up(value) + 4), tidy(value), "muted", "end", 10))
    for index, step in enumerate(steps):
        lower = 26 if dense and index % 2 else 13
        canvas.add(Words((along(index), bottom + lower), _cut(step, 22), "muted", "middle", 10))
    for key, lines in series.items():
        canvas.add(*_series(lines, steps, along, up, roles[key]))
    canvas.height = bottom + (28 if dense else 16)


def _series(
    lines: Mapping[str, Line], steps: Sequence[str], along: Scale, up: Scale, role: Role
) -> Iterator[Path | Dot]:
    paper: list[Point | None] = [None] * len(steps)
    means: list[Point | None] = [None] * len(steps)
    for index, step in enumerate(steps):
        if step not in lines:
            continue
        x, ours, printed = along(index), _ran(lines[step]), lines[step].row.cell.number
        if printed is not None:
            paper[index] = x, up(printed)
        if ours:
            means[index] = x, up(ours.value)
            yield from dots(ours, [(x, up(score)) for score in ours.scores.values()], role, 2.5)
    yield from (Path(part, role, 1.5, dashed=True) for part in _unbroken(paper))
    yield from (Dot(point, 3.5, role, hollow=True) for point in paper if point)
    yield from (Path(part, role, 2) for part in _unbroken(means))


def _unbroken(points: Sequence[Point | None]) -> Iterator[list[Point]]:
    """Yield each stretch of at least two points; a line does not cross a missing point."""
    for present, part in groupby(points, key=lambda point: point is not None):
        stretch = [point for point in part if point is not None]
        if present and len(stretch) > 1:
            yield stretch
