"""The package has few modules at its top, no import cycle, at most ten floors, and no huge room."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2] / "ptrun"


def name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name(file): file for file in ROOT.rglob("*.py")}


def imported(module):
    """Yield the modules of ptrun that a module imports, at its top or inside a function.

    The package itself imports its API only when it is used.
    """
    if not module:
        return
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ptrun":
            base = node.module.partition(".")[2]
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                yield full if full in FILES else base


def room(module):
    return module.partition(".")[0]


@cache
def modules():
    return {module: set(imported(module)) - {module} for module in FILES}


def rooms():
    found = {}
    for one, others in modules().items():
        found.setdefault(room(one), set()).update({room(other) for other in others} - {room(one)})
    return found


def floors(graph):
    """Return the floor of each node, 1 at the bottom; fail at a cycle."""

    @cache
    def floor(node, above=()):
        assert node not in above, f"import cycle: {' > '.join([*above, node])}"
        return 1 + max((floor(other, (*above, node)) for other in graph[node]), default=0)

    return {node: floor(node) for node in graph}


def test_no_module_imports_itself_by_way_of_others():
    seen, done = [], set()

    def visit(module):
        assert module not in seen, f"import cycle: {' > '.join([*seen, module])}"
        if module not in done:
            seen.append(module)
            for other in sorted(modules()[module]):
                visit(other)
            done.add(seen.pop())

    for module in sorted(modules()):
        visit(module)


def test_rooms_have_at_most_ten_floors_and_no_cycle():
    assert max(floors(rooms()).values()) <= 10


def test_the_top_has_at_most_nine_modules():
    assert len([file for file in ROOT.glob("*.py") if file.name != "__init__.py"]) <= 9
