"""Pictures of a terminal: the output of a command as an SVG file that loads nothing."""

import html
import io
import re

from rich.console import Console
from rich.text import Text

_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


def picture(name: str, command: str, output: str) -> str:
    shown = Text.from_ansi(output)
    width = max(map(len, [command + "$ ", *shown.plain.splitlines()]))
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold"))
    console.print(shown)
    return console.export_svg(title="ptrun", code_format=_FORMAT, unique_id=name)


def words(svg: str) -> list[str]:
    """Return the words of a picture in the order of the screen, with every number as `#`."""
    cells = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    text = html.unescape(" ".join(cells)).replace("\xa0", " ")
    return re.sub(r"\d[\d.,]*", "#", re.sub(r"[^\w\s.%$=:]", " ", text)).split()
