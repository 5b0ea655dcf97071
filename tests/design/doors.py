"""Private doors of other libraries: names with an underscore that are not ptrun's inner.

python -m tests.design.doors    list them, by file and line
"""

import ast
import sys

from tests.design.names import sources


def private(name):
    return name.startswith("_") and not name.endswith("__")


def defined(trees):
    """Return the private names that the package defines: functions, classes, attributes."""
    names = set()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return names


def doors():
    """Yield file, line and name of each import and attribute that is private to a library."""
    trees = dict(sources())
    inside = defined(trees.values())
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom | ast.Import):
                module = getattr(node, "module", None) or ""
                names = [f"{module}.{alias.name}".lstrip(".") for alias in node.names]
            elif isinstance(node, ast.Attribute) and node.attr not in inside:
                names = [node.attr]
            else:
                continue
            for name in names:
                root, *parts = name.split(".")
                inner = {"ptrun", "__future__", *sys.stdlib_module_names}
                if root not in inner and any(map(private, [root, *parts])):
                    yield file, node.lineno, name


if __name__ == "__main__":
    for place in doors():
        print("{}:{}: {}".format(*place))
