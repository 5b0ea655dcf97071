"""A drawing as SVG, for the page or as a file with its own colours."""

from collections.abc import Sequence
from html import escape

from ptrun.drawing.canvas import Box, Canvas, Dot, Mark, Path, Point, Words

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


def file(canvas: Canvas) -> str:
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
