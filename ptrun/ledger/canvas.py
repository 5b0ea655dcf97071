"""A drawing as a list of plain marks, which `svg` and `png` write; colours go by role."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Role = Literal["ink", "muted", "grid", "paper", "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"]
Point = tuple[float, float]
SERIES: tuple[Role, ...] = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7")


@dataclass(frozen=True)
class Path:
    """A line through points; `dashed`, or filled."""

    points: Sequence[Point]
    role: Role
    width: float = 1.0
    dashed: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Dot:
    """A circle; hollow, or filled and a little transparent."""

    at: Point
    radius: float
    role: Role
    hollow: bool = False
    title: str = ""


@dataclass(frozen=True)
class Box:
    """A rectangle, lightly filled and outlined."""

    at: Point
    size: Point
    role: Role


@dataclass(frozen=True)
class Words:
    """A text; `anchor` is `start`, `middle` or `end`, `at` the baseline."""

    at: Point
    text: str
    role: Role = "ink"
    anchor: Literal["start", "middle", "end"] = "start"
    size: float = 11.0
    bold: bool = False


Mark = Path | Dot | Box | Words


@dataclass
class Canvas:
    """A drawing that grows downwards.

    Args:
        title: what it shows, for those who cannot see it.
        width: in pixels.
        height: so far.
        marks: in the order of drawing.
    """

    title: str
    width: float = 640.0
    height: float = 0.0
    marks: list[Mark] = field(default_factory=list)

    def add(self, *marks: Mark) -> None:
        """Draw on top."""
        self.marks += marks


@dataclass(frozen=True)
class Scale:
    """From values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return a value's pixel."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def scale(values: Sequence[float], start: float, end: float) -> Scale:
    """Return a scale on which all values have a little air."""
    low, high = min(values), max(values)
    air = (high - low) * 0.06 or abs(low) * 0.01 or 1.0
    return Scale(low - air, high + air, start, end)


def ticks(found: Scale, about: int = 5) -> list[float]:
    """Return round values within a scale."""
    span = found.high - found.low
    unit: float = 10.0 ** len(str(int(span)))
    steps = [unit * 10.0**-power * own for power in range(8) for own in (5.0, 2.0, 1.0)]
    step = next((s for s in steps if span / s >= about - 2), steps[-1])
    first = int(found.low // step) + 1
    last = int(found.high // step)
    return [round(number * step, 10) for number in range(first, last + 1)]


def tidy(value: float) -> str:
    """Return a tick's text."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")
