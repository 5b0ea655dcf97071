"""A drawing as a list of marks, which `svg` and `png` write. Colours are named by role."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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
