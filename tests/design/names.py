"""Names that say a role in a sentence, not a thing; and helpers too short to jump to.

python -m tests.design.names [ROOM …]    list both, by file and line
"""

import ast
import sys
from collections import Counter
from pathlib import Path

from tests.design.budget import room_of

ROOT = Path(__file__).parents[2]
ROLES = {
    "own", "found", "one", "given", "first", "made", "whole", "kept", "known", "wanted",
}  # fmt: skip
SHORT = 3


def sources():
    """Yield the name and the syntax tree of each module of the package."""
    for file in sorted((ROOT / "ptrun").rglob("*.py")):
        yield file.relative_to(ROOT).as_posix(), ast.parse(file.read_text(encoding="utf-8"))


def stores(tree):
    """Yield line and name of each variable, argument and loop variable called by its role."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ROLES:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in ROLES:
            yield node.lineno, node.arg


def called(node):
    """Return the name of a variable or an attribute; None for other nodes."""
    return getattr(node, "attr", None) or getattr(node, "id", None)


def overridden():
    """Return the names of private methods that several modules define."""
    modules = Counter()
    for _, tree in sources():
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        modules.update(
            {
                method.name
                for node in classes
                for method in node.body
                if isinstance(method, ast.FunctionDef)
            }
        )
    return {name for name, count in modules.items() if count > 1}


def short_helpers(tree, shared=frozenset()):
    """Yield line and name of each private function of at most three lines with one caller.

    One that is handed on, as a hook or in a table, is no helper; nor is a method that another
    module overrides (`shared`).
    """
    uses, calls = Counter(), Counter()
    for node in ast.walk(tree):
        uses[called(node)] += 1
        calls[called(getattr(node, "func", None))] += isinstance(node, ast.Call)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.decorator_list:
            continue
        body = node.body[ast.get_docstring(node) is not None :]
        lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
        private = node.name.startswith("_") and not node.name.endswith("__")
        alone = uses[node.name] == calls[node.name] == 1 and node.name not in shared
        if private and lines <= SHORT and alone:
            yield node.lineno, node.name


def main():
    """List the places of the rooms that are typed, or of all."""
    totals, shared = Counter(), overridden()
    for name, tree in sources():
        if not sys.argv[1:] or room_of(name) in sys.argv[1:]:
            for kind, places in (
                ("role", stores(tree)),
                ("short helper", short_helpers(tree, shared)),
            ):
                for line, word in places:
                    print(f"{name}:{line}: {kind} {word}")
                    totals[kind, room_of(name)] += 1
    for (kind, room), count in sorted(totals.items()):
        print(f"{count:5} {kind}, {room}")
    for kind in ("role", "short helper"):
        print(f"{sum(n for (k, _), n in totals.items() if k == kind):5} {kind}")


if __name__ == "__main__":
    main()
