"""From a YAML node to an object: the constructor's signature is the schema.

Positional parameters of a component come from the run, keyword-only ones from YAML. All problems
of all nodes are found before anything is built, and reported together.
"""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config.suggest import did_you_mean
from ptrun.config.typecheck import fits, spell
from ptrun.errors import UserError

_TARGET = "_target_"


def target(node: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the class or function that a component node names.

    Raises:
        UserError: the node has no `_target_`, or it cannot be imported.
    """
    path = node.get(_TARGET)
    if not isinstance(path, str):
        raise UserError(f"_target_ is {path!r}; give the dotted path of a ptrun component.")
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"_target_ {path!r} cannot be imported: {error}.") from error
    return found  # type: ignore[no-any-return]


def problems(group: str, node: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a component node, one line each; empty if it can be built."""
    made = target(node)
    allowed, hints, needed = _schema(made)
    given = {str(key): value for key, value in node.items() if key != _TARGET}
    found = [
        f"{group}.{key}: unknown{did_you_mean(key, allowed) or '.'} "
        f"Allowed: {', '.join(allowed) or 'nothing'}."
        for key in given.keys() - set(allowed)
    ]
    found += [
        line
        for key, value in given.items()
        for name, inner in _components(value).items()
        for line in problems(f"{group}.{key}.{name}", inner)
    ]
    found += [
        f"{group}.{key}: expected {spell(hints[key])}, got {value!r}."
        for key, value in given.items()
        if key in hints and not fits(value, hints[key])
    ]
    found += [
        f"{group}.{key}: missing; type {group}.{key}=..." for key in needed if key not in given
    ]
    return sorted(found)


def _schema(made: Callable[..., Any]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Return the keys a component takes from YAML, their types, and those without a default.

    `**common: Unpack[Fields]` stands for the keys of that TypedDict.
    """
    constructor = made.__init__ if inspect.isclass(made) else made
    every = get_type_hints(constructor)
    hints: dict[str, Any] = {}
    needed: list[str] = []
    for name, parameter in inspect.signature(made).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            hints[name] = every.get(name, Any)
            needed += [name] if parameter.default is parameter.empty else []
        elif parameter.kind is parameter.VAR_KEYWORD and get_origin(every[name]) is Unpack:
            (fields,) = get_args(every[name])
            hints |= get_type_hints(fields)
            needed += sorted(fields.__required_keys__)
    return list(hints), hints, needed


def plain(node: DictConfig) -> dict[str, Any]:
    """Return a node as plain dicts and lists, interpolations resolved.

    Raises:
        UserError: a value is missing (`???`) or an interpolation leads nowhere.
    """
    try:
        container = OmegaConf.to_container(
            node, resolve=True, throw_on_missing=True, enum_to_str=True
        )
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    return container  # type: ignore[return-value]


def check(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse component nodes that cannot be built, all problems at once.

    Raises:
        UserError: one line a problem, each with the key, what is allowed and the value given.
    """
    found = [line for group, node in nodes.items() for line in problems(group, node)]
    if found:
        raise UserError("\n".join(found))


def build(node: Mapping[str, Any], *runtime: Any) -> Any:
    """Return the component a checked node describes, given what the run passes by position.

    Components inside it, by name, are built first and given the same.
    """
    keys = {k: v for k, v in node.items() if k != _TARGET}
    for key, value in keys.items():
        if inner := _components(value):
            keys[key] = {name: build(own, *runtime) for name, own in inner.items()}
    return target(node)(*runtime, **keys)


def _components(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the components a value holds by name; a value holds them alone or not at all."""
    nodes = value if isinstance(value, Mapping) else {}
    inner = {k: v for k, v in nodes.items() if isinstance(v, Mapping) and _TARGET in v}
    return inner if len(inner) == len(nodes) else {}
