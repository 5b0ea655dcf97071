"""The drawings of a table, as marks, and as SVG or PNG."""

import importlib.util
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path as File
from typing import Any, Literal

from ptrun.files import drafted
from ptrun.ledger.cells import grouped
from ptrun.ledger.experiment import AXES
from ptrun.ledger.ours import Ours
from ptrun.ledger.shown import Shown, ShownRow

# A drawing as a list of marks, which `svg` and `png` write. Colours are named by role.

Role = Literal["ink", "muted", "grid", "paper", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
Point = tuple[float, float]
SERIES: tuple[Role, ...] = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")


@dataclass(frozen=True)
class Path:
    """A solid, dashed or filled line through points."""

    points: Sequence[Point]
    role: Role
    width: float = 1.0
    dashed: bool = False
    filled: bool = False
    title: str = ""


@dataclass(frozen=True)
class Dot:
    """A circle: hollow, or filled and slightly transparent."""

    at: Point
    radius: float
    role: Role
    hollow: bool = False
    title: str = ""


@dataclass(frozen=True)
class Box:
    """A rectangle with an outline and a light fill."""

    at: Point
    size: Point
    role: Role


@dataclass(frozen=True)
class Words:
    """A text; `at` lies on its baseline."""

    at: Point
    text: str
    role: Role = "ink"
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 11.0
    bold: bool = False


Mark = Path | Dot | Box | Words


@dataclass
class Canvas:
    """A drawing that grows downwards; sizes are pixels. `title` is its description for readers."""

    title: str
    width: float = 640.0
    height: float = 0.0
    marks: list[Mark] = field(default_factory=list)

    def add(self, *marks: Mark) -> None:
        """Draw marks on top of the others."""
        self.marks += marks


@dataclass(frozen=True)
class Scale:
    """A linear map from the values `low` to `high` to the pixels `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def scale(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a scale that covers all values with a small margin."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.06 or abs(low) * 0.01 or 1.0
    return Scale(low - margin, high + margin, start, end)


def ticks(along: Scale, about: int = 5) -> list[float]:
    """Return round values within a scale."""
    span = along.high - along.low
    unit: float = 10.0 ** len(str(int(span)))
    steps = [unit * 10.0**-power * digit for power in range(8) for digit in (5.0, 2.0, 1.0)]
    step = next((s for s in steps if span / s >= about - 2), steps[-1])
    first, last = int(along.low // step) + 1, int(along.high // step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def tidy(value: float) -> str:
    """Return the text of a tick."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


# The drawings of a table: the seeds of its cells, and the curves of a figure.

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
        series: dict[str, dict[str, ShownRow]] = {}
        for line in lines:
            series.setdefault(line.row.cell.at[by], {})[line.row.cell.at[axis]] = line
        used = [step for step in steps if any(step in own for own in series.values())]
        _curve_panel(canvas, name, used, series, roles)
    canvas.height += _PAD / 2
    return canvas


def _ran(line: ShownRow) -> Ours | None:
    return line.row.paper or line.row.honest


def _values(line: ShownRow) -> list[float]:
    """Return the scores of all seeds and the printed number."""
    ours, printed = _ran(line), line.row.cell.number
    return [*(ours.scores.values() if ours else ()), *([] if printed is None else [printed])]


def _named(line: ShownRow, axes: Sequence[str]) -> str:
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


def _seed_panel(
    canvas: Canvas, name: str, lines: Sequence[ShownRow], within: Sequence[str]
) -> None:
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


def _lane(line: ShownRow, along: Scale, y: float) -> Iterator[Path | Box | Dot]:
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
    series: Mapping[str, Mapping[str, ShownRow]],
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
    lines: Mapping[str, ShownRow], steps: Sequence[str], along: Scale, up: Scale, role: Role
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


# A drawing as SVG, for the page or as a file with its own colours.

_COLOURS = {  # light, dark
    "ink": ("#22211f", "#ece9e2"),
    "muted": ("#68655e", "#a5a198"),
    "grid": ("#e3dfd6", "#3a3935"),
    "paper": ("#b3402a", "#ff9079"),
    "s0": ("#1f5fa8", "#7db4f5"),
    "s1": ("#a05a00", "#e8ab55"),
    "s2": ("#1b7a5a", "#6fcfa8"),
    "s3": ("#7b4fa3", "#c3a1ea"),
    "s4": ("#b03a6f", "#f090bd"),
    "s5": ("#4f6b12", "#b4cc72"),
    "s6": ("#0f7588", "#6fcbdc"),
    "s7": ("#6d5a4c", "#c9b6a6"),
}
LIGHT = {role: light for role, (light, _) in _COLOURS.items()}
DARK = {role: dark for role, (_, dark) in _COLOURS.items()}
GROUND = ("#fdfcfa", "#1c1b19")
_SHAPES = (
    ".plot{font:11px system-ui,sans-serif}"
    ".plot text{fill:var(--c);font-variant-numeric:tabular-nums}"
    ".plot path,.plot rect,.plot circle{stroke:var(--c);fill:none}"
    ".plot .solid{fill:var(--c);fill-opacity:.62;stroke:none}"
    ".plot rect{fill:var(--c);fill-opacity:.12}.plot .full{fill:var(--c)}"
    ".plot .bold{font-weight:600}"
)


def inside(canvas: Canvas) -> str:
    """Return the drawing for a page that contains `style()`."""
    return _whole(canvas, "", "")


def svg_file(canvas: Canvas) -> str:
    """Return the drawing as a file; it is light or dark as the reader's screen is."""
    dark = "".join(_rule(role, colour) for role, colour in DARK.items())
    light = "".join(_rule(role, colour) for role, colour in LIGHT.items())
    style = (
        f"<style>{_SHAPES}{light}.ground{{fill:{GROUND[0]}}}"
        f"@media(prefers-color-scheme:dark){{{dark}.ground{{fill:{GROUND[1]}}}}}</style>"
    )
    ground = f'<path class="ground" d="M0 0H{canvas.width:g}V{canvas.height:g}H0Z"/>'
    name = ' xmlns="http://www.w3.org/2000/svg"'
    title = f"<title>{escape(canvas.title)}</title>"
    return _whole(canvas, name, title + style + ground) + "\n"


def style() -> str:
    """Return the CSS rules of all drawings; `light-dark` follows the page's theme."""
    both = (_rule(role, f"light-dark({LIGHT[role]},{DARK[role]})") for role in LIGHT)
    return _SHAPES + "".join(both)


def _rule(role: str, colour: str) -> str:
    return f".plot .{role}{{--c:{colour}}}"


def _whole(canvas: Canvas, name: str, head: str) -> str:
    size = f'width="{canvas.width:g}" height="{canvas.height:g}"'
    box = f'viewBox="0 0 {canvas.width:g} {canvas.height:g}"'
    title = escape(canvas.title)
    marks = "".join(map(_mark, canvas.marks))
    return (
        f'<svg{name} class="plot" role="img" aria-label="{title}" {size} {box}>{head}{marks}</svg>'
    )


def _mark(mark: Mark) -> str:
    if isinstance(mark, Path):
        return _path(mark)
    x, y = map(_n, mark.at)
    if isinstance(mark, Dot):
        solid = "" if mark.hollow else " solid"
        at = f'cx="{x}" cy="{y}" r="{_n(mark.radius)}"'
        return f'<circle class="{mark.role}{solid}" {at}{_ended("circle", mark.title)}'
    if isinstance(mark, Box):
        width, height = map(_n, mark.size)
        size = f'width="{width}" height="{height}"'
        return f'<rect class="{mark.role}" x="{x}" y="{y}" {size} rx="2"/>'
    return _words(mark)


def _path(mark: Path) -> str:
    line = _line(mark.points) + ("Z" if mark.filled else "")
    dashes = ' stroke-dasharray="4 3"' if mark.dashed else ""
    full = " full" if mark.filled else ""
    width = f' stroke-width="{mark.width:g}"' if mark.width != 1 else ""
    own = f'<path class="{mark.role}{full}" d="{line}"{width}{dashes}'
    return own + _ended("path", mark.title)


def _line(points: Sequence[Point]) -> str:
    """Return a line through points; between two of one height or one side it is short."""
    (x, y), *rest = [(_n(x), _n(y)) for x, y in points]
    if len(rest) == 1 and x == rest[0][0]:
        return f"M{x} {y}V{rest[0][1]}"
    if len(rest) == 1 and y == rest[0][1]:
        return f"M{x} {y}H{rest[0][0]}"
    return "M" + "L".join(" ".join(point) for point in [(x, y), *rest])


def _ended(name: str, title: str) -> str:
    """Return the end of an element; readers see its title beside the pointer."""
    return f"><title>{escape(title)}</title></{name}>" if title else "/>"


def _words(mark: Words) -> str:
    anchor = "" if mark.anchor == "start" else f' text-anchor="{mark.anchor}"'
    size = "" if mark.size == 11 else f' font-size="{mark.size:g}"'
    bold = " bold" if mark.bold else ""
    at = f'x="{_n(mark.at[0])}" y="{_n(mark.at[1])}"'
    return f'<text class="{mark.role}{bold}" {at}{anchor}{size}>{escape(mark.text)}</text>'


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# A drawing as PNG, if matplotlib is installed: `pip install 'ptrun[figures]'`.

_DPI = 200
_POINTS = 72 / 96  # points in a pixel
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def png_possible() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_png(canvas: Canvas, file: File) -> None:
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
