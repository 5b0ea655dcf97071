"""What a table looks like: the seeds of its cells, and its curves."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from ptrun.ledger.canvas import (
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
from ptrun.ledger.experiment import AXES
from ptrun.ledger.rows import Ours, Row
from ptrun.ledger.shown import Line, Shown

_PAD, _LABEL, _LANE, _BOXED = 16.0, 190.0, 22.0, 5
_HIGH = 190.0


def plots(table: Shown) -> dict[str, Canvas]:
    """Return the drawings of a table by name: `seeds` if any ran, `curves` of a figure.

    Methods beside each other are no curve: of such a figure the seeds are the drawing.
    """
    found = {}
    if any(_ran(line.row) for line in table.lines):
        found["seeds"] = seeds(table)
    if table.experiment.curve not in (None, "method") and any(map(_points_of, table.lines)):
        found["curves"] = curves(table)
    return found


def seeds(table: Shown) -> Canvas:
    """Return every seed's score as a dot, boxes of five and more, and the paper's number."""
    canvas = Canvas(f"{table.heading}: scores by seed beside the paper's")
    lines = [line for line in table.lines if _ran(line.row)]
    apart, within = _apart(table, ("setting", "task", "metric"))
    _head(canvas, table.heading, "by seed", [])
    _key(canvas)
    for name, own in _panels(lines, apart).items():
        _seed_panel(canvas, name, own, within)
    canvas.height += _PAD / 2
    return canvas


def curves(table: Shown) -> Canvas:
    """Return scores over the axis of a figure: the paper's dashed, ours solid with its seeds."""
    experiment = table.experiment
    assert experiment.curve
    free = [axis for axis in ("method", "backbone") if axis != experiment.curve]
    by = next((axis for axis in free if axis in table.axes), free[0])
    lines = list(table.lines)
    steps = list(dict.fromkeys(line.row.cell.at[experiment.curve] for line in lines))
    names = list(dict.fromkeys(line.row.cell.at[by] for line in lines))
    roles = {name: SERIES[index % len(SERIES)] for index, name in enumerate(names)}
    canvas = Canvas(f"{table.heading}: curves over {experiment.curve}")
    _head(canvas, table.heading, f"over {experiment.curve}", list(roles.items()))
    rest = tuple(axis for axis in table.axes if axis not in (experiment.curve, by))
    for name, own in _panels(lines, rest).items():
        if not any(map(_points_of, own)):
            continue
        _curve_panel(canvas, name, own, steps, by, roles)
    canvas.height += _PAD / 2
    return canvas


def _ran(row: Row) -> Ours | None:
    return row.paper or row.honest


def _points_of(line: Line) -> bool:
    return line.row.cell.number is not None or _ran(line.row) is not None


def _apart(table: Shown, wanted: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the axes that tell panels apart, and those that tell the lines within one."""
    apart = tuple(axis for axis in wanted if axis in table.axes)
    within = tuple(axis for axis in table.axes if axis not in apart)
    return (apart, within) if within else ((), apart)


def _named(line: Line, axes: Sequence[str]) -> str:
    at: Mapping[str, str] = {**line.row.cell.at, "metric": line.row.cell.metric}
    return " · ".join(at[axis] for axis in (*AXES, "metric") if axis in axes)


def _panels(lines: Sequence[Line], axes: Sequence[str]) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in lines:
        found.setdefault(_named(line, axes), []).append(line)
    return found


def _head(canvas: Canvas, name: str, what: str, keys: Sequence[tuple[str, Role]]) -> None:
    canvas.height += _PAD + 14
    canvas.add(Words((_PAD, canvas.height), f"{name}, {what}", size=14, bold=True))
    canvas.height += 10
    x = _PAD
    for index, (text, role) in enumerate(keys):
        width = 30 + 6.4 * len(text)
        if index == 0 or x + width > canvas.width - _PAD:
            canvas.height += 14
            x = _PAD
        y = canvas.height - 4
        canvas.add(Path([(x, y), (x + 14, y)], role, 2), Words((x + 19, canvas.height), text))
        x += width
    if keys:
        canvas.height += 18
        y = canvas.height - 4
        canvas.add(Path([(_PAD, y), (_PAD + 14, y)], "muted", 1.5, dashed=True))
        canvas.add(Words((_PAD + 19, canvas.height), "paper", "muted"))
        canvas.add(Path([(_PAD + 64, y), (_PAD + 78, y)], "muted", 2))
        canvas.add(Dot((_PAD + 71, y), 2.5, "muted"))
        canvas.add(Words((_PAD + 83, canvas.height), "ours, a dot for each seed", "muted"))


def _key(canvas: Canvas) -> None:
    canvas.height += 14
    y = canvas.height - 4
    canvas.add(_diamond(_PAD + 5, y), Words((_PAD + 15, canvas.height), "paper", "muted"))
    canvas.add(Dot((_PAD + 66, y), 3.2, "s0"), Words((_PAD + 75, canvas.height), "a seed", "muted"))
    canvas.add(Path([(_PAD + 126, y - 6), (_PAD + 126, y + 6)], "ink", 2))
    canvas.add(Words((_PAD + 133, canvas.height), "what is reported of them", "muted"))


def _diamond(x: float, y: float, half: float = 4.5) -> Path:
    points = [(x, y - half), (x + half, y), (x, y + half), (x - half, y)]
    return Path(points, "paper", filled=True)


def _seed_panel(canvas: Canvas, name: str, lines: Sequence[Line], within: Sequence[str]) -> None:
    canvas.height += 26
    canvas.add(Words((_PAD, canvas.height), name, bold=True))
    canvas.height += 8
    values = [value for line in lines for value in _values(line)]
    along = scale(values, _LABEL, canvas.width - _PAD)
    top, bottom = canvas.height, canvas.height + _LANE * len(lines)
    for value in ticks(along):
        x = along(value)
        canvas.add(Path([(x, top), (x, bottom)], "grid"))
        canvas.add(Words((x, bottom + 13), tidy(value), "muted", "middle", 10))
    for index, line in enumerate(lines):
        y = top + _LANE * (index + 0.5)
        label = _named(line, within)
        canvas.add(Words((_LABEL - 10, y + 4), _cut(label), "ink", "end"))
        canvas.add(*_lane(line, along, y))
    canvas.height = bottom + 16


def _values(line: Line) -> list[float]:
    ours = _ran(line.row)
    assert ours
    printed = line.row.cell.number
    return [*ours.scores.values(), *([] if printed is None else [printed])]


def _lane(line: Line, along: Scale, y: float) -> Iterator[Path | Box | Dot]:
    ours, printed = _ran(line.row), line.row.cell.number
    assert ours
    scores = sorted(ours.scores.values())
    if len(scores) >= _BOXED:
        low, middle, high = map(along, statistics.quantiles(scores, n=4, method="inclusive"))
        yield Path([(along(scores[0]), y), (along(scores[-1]), y)], "s0")
        yield Box((low, y - 6), (high - low, 12), "s0")
        yield Path([(middle, y - 6), (middle, y + 6)], "s0", 1.5)
    for seed, score in ours.scores.items():
        yield Dot((along(score), y), 3.2, "s0", title=f"seed {seed}: {score:.2f}")
    yield Path([(along(ours.value), y - 8), (along(ours.value), y + 8)], "ink", 2)
    if printed is not None:
        yield _diamond(along(printed), y)


def _cut(text: str, most: int = 30) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _curve_panel(
    canvas: Canvas,
    name: str,
    lines: Sequence[Line],
    steps: Sequence[str],
    by: str,
    roles: Mapping[str, Role],
) -> None:
    canvas.height += 26
    canvas.add(Words((_PAD, canvas.height), name, bold=True))
    top, bottom = canvas.height + 10, canvas.height + 10 + _HIGH
    used = [step for step in steps if step in {_step(line) for line in lines}]
    up = scale(
        [value for line in lines if _points_of(line) for value in _heights(line)], bottom, top
    )
    along = Scale(-0.5, len(used) - 0.5, _PAD + 34, canvas.width - _PAD)
    for value in ticks(up):
        canvas.add(Path([(along.start, up(value)), (along.end, up(value))], "grid"))
        canvas.add(Words((along.start - 6, up(value) + 4), tidy(value), "muted", "end", 10))
    for index, step in enumerate(used):
        lower = 13 if len(used) < 9 or index % 2 == 0 else 26
        canvas.add(Words((along(index), bottom + lower), _cut(step, 22), "muted", "middle", 10))
    for series in dict.fromkeys(line.row.cell.at[by] for line in lines):
        own = {_step(line): line for line in lines if line.row.cell.at[by] == series}
        canvas.add(*_series(own, used, along, up, roles[series]))
    canvas.height = bottom + (16 if len(used) < 9 else 28)


def _step(line: Line) -> str:
    assert line.row.experiment.curve
    return line.row.cell.at[line.row.experiment.curve]


def _heights(line: Line) -> list[float]:
    return _values(line) if _ran(line.row) else [line.row.cell.number or 0.0]


def _series(
    own: Mapping[str, Line], steps: Sequence[str], along: Scale, up: Scale, role: Role
) -> Iterator[Path | Dot]:
    theirs: list[Point | None] = []
    ours: list[Point | None] = []
    for index, step in enumerate(steps):
        row, x = own[step].row if step in own else None, along(index)
        value, found = (row.cell.number, _ran(row)) if row else (None, None)
        theirs.append(None if value is None else (x, up(value)))
        ours.append(None if found is None else (x, up(found.value)))
        for seed, score in found.scores.items() if found else ():
            yield Dot((x, up(score)), 2.5, role, title=f"seed {seed}: {score:.2f}")
    yield from (Path(part, role, 1.5, dashed=True) for part in _unbroken(theirs))
    yield from (Dot(point, 3.5, role, hollow=True) for point in theirs if point)
    yield from (Path(part, role, 2) for part in _unbroken(ours))


def _unbroken(points: Sequence[Point | None]) -> Iterator[list[Point]]:
    """Yield the stretches of two points and more: nothing is drawn across what is not there."""
    for there, part in groupby(points, key=lambda point: point is not None):
        kept = [point for point in part if point is not None]
        if there and len(kept) > 1:
            yield kept
