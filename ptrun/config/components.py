"""Which classes a `_target_` may name: those in the option files that count for its group.

A configuration can come from somebody else: a run folder, a downloaded project, a preset. So a
class is imported only if a file names it that ptrun ships, that an installed package declares, or
that the user has: below `~/.config/ptrun/conf`, or in a folder that was trusted
(`ptrun.config.trust`). Nothing that is read with a run, a model or data can name another one.
"""

import hashlib
import json
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from ptrun.config.paths import conf_dir, package_dirs, user_dirs
from ptrun.config.trust import is_trusted
from ptrun.errors import UserError
from ptrun.files import read_text

TARGET = "_target_"
_NAMED = re.compile(rf"""{TARGET}["']?: *["']?([\w.]+)""")
_ALLOW_BIN = "PTRUN_ALLOW_BIN"  # the ranks of a run inherit it


def component(group: str, path: Any) -> Any:
    """Return the class that a `_target_` of a group names; a file that counts must name it."""
    if not isinstance(path, str):
        raise UserError(f"{group}.{TARGET} is {path!r}. Give the dotted path of a component.")
    if path not in shipped(group):
        every = [*user_dirs(), *package_dirs()]  # a group may be a link to a folder
        folders = [inner for folder in every for inner in (folder, *folder.glob("*/"))]
        files = [file for folder in folders for file in folder.glob("*.yaml") if file.is_file()]
        texts = (read_text(file, "replace", links=True) for file in files)
        if not any(path in _NAMED.findall(text) for text in texts):
            raise UserError(
                f"{group}.{TARGET} is {path!r}, which is not a {group} of ptrun. It was not "
                f"imported.\nIf it is yours, name it in ptrun_conf/{group}/NAME.yaml, and type: "
                "ptrun trust"
            )
        if is_trusted(Path.cwd()) and os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
    module, _, name = path.rpartition(".")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{group}.{TARGET}={path!r} cannot be imported: {error}.") from error


@cache
def shipped(group: str) -> frozenset[str]:
    """Return the `_target_`s that ptrun's own files of a group name."""
    files = (conf_dir() / group).glob("*.yaml")
    text = "\n".join(file.read_text("utf-8") for file in files)
    return frozenset(_NAMED.findall(text))


def targets(node: Any) -> Iterator[Any]:
    """Yield every `_target_` in a node, at any depth."""
    if isinstance(node, Mapping):
        yield from (value for key, value in node.items() if key == TARGET)
    inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    for value in inner:
        yield from targets(value)


def own_code(nodes: Mapping[str, Any]) -> dict[str, str]:
    """Return the imported `_target_`s of nodes, by group, that are not ptrun's, with a source hash.

    The hash covers the whole package of a class, so an edit of a helper module counts too.
    """
    paths = {str(path) for group in nodes for path in targets(nodes[group])}
    paths -= {path for group in nodes for path in shipped(group)}
    return {path: _source_hash(path.rpartition(".")[0]) for path in sorted(paths)}


def _source_hash(module: str) -> str:
    """Return 16 hex digits over the Python files of a module's top-level package."""
    top = sys.modules[module.partition(".")[0]]
    files = [file for folder in getattr(top, "__path__", ()) for file in Path(folder).rglob("*.py")]
    hashed = hashlib.sha256()
    for file in sorted(files) or [Path(str(top.__file__))]:
        hashed.update(file.read_bytes())
    return hashed.hexdigest()[:16]


# What the user permits on the command line.


def without_permission(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without `allow_bin=`, which is recorded for this process.

    It is for pickled weights of the hub.
    """
    for argument in permission(arguments):
        value = argument.partition("=")[2]
        if value not in ("true", "false"):
            raise UserError(f"{argument}: expected true or false. Type allow_bin=true.")
        os.environ[_ALLOW_BIN] = value
    return [argument for argument in arguments if not argument.startswith("allow_bin=")]


def permission(arguments: Sequence[str]) -> list[str]:
    """Return the permission among the arguments."""
    return [argument for argument in arguments if argument.startswith("allow_bin=")]


# Check values from YAML against the annotations of constructors.


def fits(value: Any, annotation: Any) -> bool:
    """Return whether `value` (plain YAML data) matches `annotation`.

    An int passes as a float; a bool never passes as a number; an unknown annotation passes.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(fits(value, part) for part in arguments)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in arguments)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(fits(v, arguments[1]) for v in value.values())
    if origin in (list, Sequence):
        return isinstance(value, list) and all(fits(item, arguments[0]) for item in value)
    if annotation in (None, type(None)):
        return value is None
    if annotation in (float, int):
        kind = int | float if annotation is float else int
        return isinstance(value, kind) and not isinstance(value, bool)
    return annotation is Any or not isinstance(annotation, type) or isinstance(value, annotation)


def typed(value: Any) -> str:
    """Return plain YAML data as it is typed: true, null, [1, 2]."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def spell(annotation: Any) -> str:
    """Return an annotation as text for messages: `int or null`, `one of 'a', 'b'`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(spell(part) for part in arguments)
    if origin is Literal:
        return "one of " + ", ".join(repr(part) for part in arguments)
    if origin in (list, Sequence) and arguments:
        return f"list of {spell(arguments[0])}"
    if annotation in (None, type(None)):
        return "null"
    return str(getattr(annotation, "__name__", annotation))
