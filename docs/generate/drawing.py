"""The marks of a drawing as SVG; `site.css` has their colours by role."""

from collections.abc import Iterable
from html import escape


def words(
    x: float, y: float, text: str, role: str = "ink", anchor: str = "start", size: float = 11
) -> str:
    """Return a text on a baseline."""
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}"'
    return f'<text class="{role}" {place}>{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, role: str) -> str:
    """Return a rectangle with an outline; its role has ` full` if it is filled."""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"'
    return f'<rect class="{role}" {size}/>'


def dot(x: float, y: float, radius: float, role: str) -> str:
    """Return a filled circle."""
    return f'<circle class="{role} full" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'


def arrow(x: float, y: float, length: float, role: str) -> str:
    """Return an arrow upwards."""
    shaft = f'<path class="{role}" d="M{x:.1f} {y:.1f}v-{length:.1f}" stroke-width="2"/>'
    return f'{shaft}<path class="{role} full" d="M{x - 4:.1f} {y - length + 1:.1f}h8l-4 -7z"/>'


def drawing(title: str, width: float, height: float, marks: Iterable[str]) -> str:
    """Return marks as a drawing for a page; readers hear its title."""
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    name = f'class="plot" role="img" aria-label="{escape(title)}"'
    return f"<svg {name} {size}>{''.join(marks)}</svg>"
