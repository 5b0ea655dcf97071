"""The pages of the site as they are after the program has filled them in, and their code blocks."""

import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
sys.path.append(str(DOCS / "generate"))

from site_pages import expand  # noqa: E402

_BLOCK = re.compile(
    r"^(?:<!-- doc: (?P<how>\w+) -->\n)?"
    r"```(?P<language>\w+)?(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A code block.

    Args:
        how: empty, it is executed; `slow`, so it is, in the slow tests alone; `compose`, it needs
            a GPU, the hub or data, so its commands are parsed and composed.
        title: the file that it is written to.
    """

    language: str
    code: str
    how: str = ""
    title: str = ""

    @property
    def lines(self):
        """The commands of a block, without comments, continuations joined."""
        text = self.code.replace("\\\n", " ")
        return [line for line in text.splitlines() if line and not line.startswith("#")]


def pages():
    files = [f for f in DOCS.rglob("*.md") if "generate" not in f.parts]
    return sorted(str(file.relative_to(DOCS)) for file in files)


def source(page):
    return (DOCS / page).read_text(encoding="utf-8")


@cache
def text(page):
    return expand(source(page))


def blocks(markdown):
    return [
        Block(m["language"] or "", m["code"], m["how"] or "", m["title"] or "")
        for m in _BLOCK.finditer(markdown)
    ]
