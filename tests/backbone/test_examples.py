"""Each public class of the backbone that computes shows its use by an example that runs."""

import doctest
import inspect
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

ROOM = Path(__file__).parents[2] / "ptrun" / "backbone"
MOST = 6


def computes(made):
    """Return whether a class is more than a record of fields."""
    members = (value for name, value in vars(made).items() if not name.startswith("_"))
    return not is_dataclass(made) or any(
        inspect.isfunction(member) or isinstance(member, property) for member in members
    )


@pytest.mark.parametrize("file", sorted(ROOM.glob("[!_]*.py")), ids=lambda file: file.stem)
def test_examples_of_public_classes_run(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = import_module(f"ptrun.backbone.{file.stem}")
    for name, made in vars(module).items():
        if not inspect.isclass(made) or made.__module__ != module.__name__ or name[0] == "_":
            continue
        if inspect.isabstract(made) or not computes(made):
            continue
        (example,) = doctest.DocTestFinder(recurse=False).find(made, globs={})
        lines = [line for part in example.examples for line in part.source.splitlines()]
        assert 0 < len(lines) <= MOST, f"{name} has {len(lines)} lines of example"
        told = []
        doctest.DocTestRunner().run(example, out=told.append)
        assert not told, "".join(told)
