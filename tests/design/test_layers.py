"""Imports go down only, nothing heavy loads early, and folders match groups."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ptrun.config.schema import GROUPS

ROOT = Path(__file__).parents[2] / "ptrun"
LAYERS = [
    ("__init__", "types", "errors", "files", "metrics", "pocket"),
    ("config",),
    ("hub", "prompt"),
    ("backbone",),
    ("pattern",),
    ("task",),
    ("folder", "tracking"),
    ("readout", "importing"),
    ("method",),
    ("training", "start"),
    ("hardware",),
    ("runs", "sweeps"),
    ("exporting", "predicting", "reporting", "scaffold"),
    ("planning",),
    ("api", "command", "testing"),
    ("cli",),
    ("__main__",),
    ("papers", "serve"),
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def name(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name(file): file for file in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in FILES.items()}


def imported(module):
    """Yield the modules of ptrun that a module imports, at its top or inside a function."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ptrun":
            base = node.module.partition(".")[2]
            for alias in node.names:
                full = f"{base}.{alias.name}".strip(".")
                yield full if full in FILES else base


def room(module):
    return module.partition(".")[0] or "__init__"


MODULES = {module: {*imported(module)} - {module} for module in FILES if module}
"""What each imports; the package itself imports its API only when it is used."""


@pytest.mark.parametrize("own", sorted({*map(room, FILES)}))
def test_imports_go_down(own):
    for module in MODULES:
        for other in MODULES[module] if room(module) == own else ():
            below = RANK[room(other)] < RANK[own]
            assert below or room(other) == own, f"{module} may not import {other}"


def test_the_package_needs_no_other_folder_of_the_checkout():
    """They are outside of the wheel."""
    outside = {"workshop", "benchmarks", "tests", "scripts", "docs", "examples"}
    for file, tree in TREES.items():
        for node in ast.walk(tree):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in named} & outside, file


def test_packages_have_no_code_of_their_own():
    for file in FILES.values():
        if file.name == "__init__.py" and file.parent != ROOT:
            assert not file.read_text(encoding="utf-8").strip(), file


def test_every_part_has_a_layer():
    assert {*map(room, FILES)} <= set(RANK)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_a_folder_in_both_trees(group):
    place = f"task/{group}.py" if group in ("setting", "protocol") else group
    assert (ROOT / place).exists() and (ROOT.parent / "conf" / group).is_dir()


@pytest.mark.parametrize("option", ["fine_tuning", "prompt_tuning", "ptuning_v2"])
def test_a_method_is_found_from_its_override(option):
    text = (ROOT.parent / "conf" / "method" / f"{option}.yaml").read_text()
    assert f"ptrun.method.{option}." in text and (ROOT / "method" / f"{option}.py").is_file()


LIGHT = """\
import sys
from ptrun.cli import main
for line in ("--help", "list", "list task", "report --paper all", "predict --help",
             "export --help", "new --help"):
    sys.argv = ["ptrun", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
    heavy = {"torch", "transformers", "datasets", "numpy", "matplotlib", "jinja2"}
    assert not heavy & set(sys.modules), (line, heavy & set(sys.modules))
"""


def test_light_commands_import_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_planning_imports_no_transformers():
    """It takes seconds, and only a model or a tokenizer needs it."""
    code = "import sys, ptrun.runs.plan, ptrun.papers.running as _\n"
    code += "assert 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
