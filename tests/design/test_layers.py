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
    ("pattern", "task"),
    ("folder", "tracking"),
    ("readout", "importing"),
    ("method",),
    ("training", "start"),
    ("hardware",),
    ("runs", "sweeps"),
    ("exporting", "ledger", "planning", "predicting", "scaffold"),
    ("api", "command", "testing"),
    ("cli",),
    ("__main__",),
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules():
    return sorted(ROOT.rglob("*.py"))


def part(file):
    first = file.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(file):
    if file == ROOT / "__init__.py":  # it imports the API only when it is used
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "ptrun"
        ):
            names = node.module.split(".")[1:2] or [alias.name for alias in node.names]
            yield from names


@pytest.mark.parametrize("own", sorted({part(file) for file in modules()}))
def test_imports_go_down(own):
    for file in modules():
        for other in imports(file) if part(file) == own else ():
            if other in RANK and other != own:
                assert RANK[other] < RANK[own], f"{file} may not import {other}"


def test_the_package_needs_no_other_folder_of_the_checkout():
    """They are outside of the wheel."""
    outside = {"workshop", "benchmarks", "tests", "scripts", "docs", "examples"}
    for file in modules():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            named += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert not {name.partition(".")[0] for name in named} & outside, file


def test_packages_have_no_code_of_their_own():
    for file in modules():
        if file.name == "__init__.py" and file.parent != ROOT:
            assert not file.read_text(encoding="utf-8").strip(), file


def test_every_part_has_a_layer():
    assert {part(file) for file in modules()} <= set(RANK)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_has_a_folder_in_both_trees(group):
    place = f"task/{group}.py" if group in ("setting", "protocol") else group
    assert (ROOT / place).exists() and (ROOT.parent / "conf" / group).is_dir()


@pytest.mark.parametrize("option", ["fine_tuning", "prompt_tuning", "ptuning_v2"])
def test_a_method_is_found_from_its_override(option):
    text = (ROOT.parent / "conf" / "method" / f"{option}.yaml").read_text()
    assert f"ptrun.method.{option}." in text and (ROOT / "method" / f"{option}.py").is_file()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list"],
        ["list", "task"],
        ["report", "--paper", "all"],
        ["predict", "--help"],
        ["export", "--help"],
        ["new", "--help"],
    ],
)
def test_light_commands_import_nothing_heavy(arguments):
    code = (
        f"import sys; sys.argv = ['ptrun', *{arguments!r}]\n"
        "from ptrun.cli import main\nmain()\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy', 'matplotlib', 'jinja2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_planning_imports_no_transformers():
    """It takes seconds, and only a model or a tokenizer needs it."""
    code = "import sys, ptrun.runs.plan, ptrun.ledger.running as _\n"
    code += "assert 'transformers' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
