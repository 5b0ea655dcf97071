"""Each public class of these rooms shows its use in its docstring, by an example that runs."""

import doctest
import inspect
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from tests.tiers import package

ROOMS = ["backbone", "method", "readout"]
ROOT = Path(__file__).parents[2] / "ptrun"
MOST = 6
FILES = [file for room in ROOMS for file in sorted((ROOT / room).glob("[!_]*.py"))]


def name(file):
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts)


def classes(module):
    """Return the public classes of a module that compute: no abstract ones, errors and records."""
    return [
        of
        for key, of in vars(module).items()
        if inspect.isclass(of) and of.__module__ == module.__name__ and key[0] != "_"
        if not inspect.isabstract(of) and not issubclass(of, Exception) and not is_record(of)
    ]


def is_record(of):
    """Return whether a data class of the backbone only holds fields."""
    public = (value for key, value in vars(of).items() if not key.startswith("_"))
    computes = any(inspect.isfunction(value) or isinstance(value, property) for value in public)
    return "backbone" in of.__module__ and is_dataclass(of) and not computes


@pytest.mark.parametrize("file", FILES, ids=name)
def test_examples_of_public_classes_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = import_module(name(file))
    if file.name == "peft.py":
        package("peft")
    for of in classes(module):
        lines = [
            line for line in inspect.getdoc(of).splitlines() if line.startswith((">>>", "..."))
        ]
        assert 0 < len(lines) <= MOST, f"{of.__qualname__} has {len(lines)} lines of example"
        (example,) = doctest.DocTestFinder(recurse=False).find(of, globs={})
        told = []
        doctest.DocTestRunner().run(example, out=told.append)
        assert not told, "".join(told)
