"""The budget of the house: lines and Python tokens of each room, in `budget.toml`.

python -m tests.design.budget                          lower the numbers to what the rooms have
python -m tests.design.budget ROOM "what it is for" …  raise those of rooms, for a new capability
"""

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("budget.toml")
HEAD = """\
# Lines of text and Python tokens (without comments and docstrings) of each room. A room is within
# both, and at most 2 % below: what is saved is written down by `python -m tests.design.budget`.
# A number is raised with `reason`, in the commit of the capability that it is for.
"""
TOP = "top level"
SLACK = 0.02
_PLACES = ("ptrun", "workshop", "scripts", "benchmarks", "conf")
_TEXT = {".py", ".html", ".js", ".css", ".yaml", ".toml", ".sh", ".md", ".txt", ".csv", ".json"}
_DATA = ("ptrun/pocket/models/", "benchmarks/results/")  # made by programs
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def room_of(name):
    """Return the room of a file: a folder of ptrun/, its top level, or a folder beside it."""
    place, *inner = name.split("/")
    if place != "ptrun":
        return f"{place}/"
    return inner[0] if len(inner) > 1 else TOP


def files():
    """Yield the text files of the rooms, by name."""
    for place in _PLACES:
        for file in sorted((ROOT / place).rglob("*")):
            name = file.relative_to(ROOT).as_posix()
            if file.suffix in _TEXT and file.is_file() and not name.startswith(_DATA):
                yield name, file


def tokens(source):
    """Return the number of tokens of Python text, without layout, comments and docstrings."""
    documents = {
        (node.body[0].lineno, node.body[0].col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    read = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(one.type not in _LAYOUT and one.start not in documents for one in read)


@cache
def sizes():
    lines, words = Counter(), Counter()
    for name, file in files():
        text = file.read_text(encoding="utf-8")
        lines[room_of(name)] += len(text.splitlines())
        words[room_of(name)] += tokens(text) if file.suffix == ".py" else 0
    return {room: {"lines": lines[room], "tokens": words[room]} for room in sorted(lines)}


def read(text):
    return tomllib.loads(text)


def within(size, most):
    """Return what is wrong with a room, or None."""
    for key in ("lines", "tokens"):
        if size[key] > most[key]:
            return f"{size[key]:,} {key}, {size[key] - most[key]:,} too many"
        if size[key] < most[key] * (1 - SLACK):
            return f"{size[key]:,} {key} of {most[key]:,}: write down what was saved"
    return None


def raised(before, after):
    """Return the rooms whose numbers grew from one budget to the next without a new reason."""
    return [
        room
        for room, most in after.items()
        if any(most[key] > before.get(room, {}).get(key, 0) for key in ("lines", "tokens"))
        and most.get("reason", "") in ("", before.get(room, {}).get("reason"))
    ]


def main():
    """Write the budget; a number grows for the named rooms alone."""
    parser = argparse.ArgumentParser(prog="python -m tests.design.budget", description=__doc__)
    parser.add_argument("pairs", nargs="*", metavar="ROOM REASON")
    pairs = parser.parse_args().pairs
    reasons = dict(zip(pairs[::2], pairs[1::2], strict=True))
    before, made = read(FILE.read_text(encoding="utf-8")), HEAD
    for room, size in sizes().items():
        most = before.get(room, {})
        reason = reasons.get(room, most.get("reason"))
        grows = any(size[key] > most.get(key, 0) for key in size)
        if grows and room not in reasons:
            sys.exit(f"{room}: {within(size, most)}; a room grows for a reason that you type")
        made += f'\n["{room}"]\nlines = {size["lines"]}\ntokens = {size["tokens"]}\n'
        made += f'reason = "{reason}"\n' if reason else ""
    FILE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
