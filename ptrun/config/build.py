"""From a YAML node to an object: the constructor's signature is the schema.

Positional parameters of a component come from the run, keyword-only ones from YAML. All problems
of all nodes are collected and reported together before anything is built.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config.components import TARGET, component, targets
from ptrun.config.suggest import did_you_mean
from ptrun.config.typecheck import fits, spell
from ptrun.errors import UserError


@dataclass(frozen=True)
class Component:
    """A checked node of a group, to be built when its runtime arguments are there."""

    group: str
    node: Mapping[str, Any]

    @property
    def target(self) -> Any:
        """The class it names."""
        return target(self.group, self.node)

    def build(self, *runtime: Any) -> Any:
        """Return the object, given what the run passes by position."""
        return build(self.group, self.node, *runtime)


def target(group: str, node: Mapping[str, Any]) -> Any:
    """Return the class that a component node of a group names.

    Raises:
        UserError: it names none, or one that may not be imported (`ptrun.config.components`).
    """
    return component(group, node.get(TARGET))


def problems(group: str, node: Mapping[str, Any], path: str = "") -> list[str]:
    """Return what is wrong with a component node, one line each; empty if it can be built.

    `path` is where the node is in the configuration, if it is inside another one.
    """
    path = path or group
    allowed, hints, needed = _schema(target(group, node))
    given = {str(key): value for key, value in node.items() if key != TARGET}
    lines = [
        f"{path}.{key}: unknown{did_you_mean(key, allowed) or '.'} "
        f"Allowed: {', '.join(allowed) or 'nothing'}."
        for key in given.keys() - set(allowed)
    ]
    for key, value in given.items():
        inner = _components(value)
        for name, own in inner.items():
            lines += problems(group, own, f"{path}.{key}.{name}")
        if not inner and any(True for _ in targets(value)):
            lines.append(f"{path}.{key}: no component may be here. Remove its {TARGET}.")
        if key in hints and not fits(value, hints[key]):
            lines.append(f"{path}.{key}: expected {spell(hints[key])}, got {value!r}.")
    lines += [f"{path}.{key}: missing; type {path}.{key}=..." for key in needed if key not in given]
    return sorted(lines)


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
    """Refuse component nodes, by group, that cannot be built.

    Raises:
        UserError: one line a problem, each with the key, what is allowed and the value given.
    """
    found = [line for group, node in nodes.items() for line in problems(group, node)]
    if found:
        raise UserError("\n".join(found))


def build(group: str, node: Mapping[str, Any], *runtime: Any) -> Any:
    """Return the component a checked node describes, given what the run passes by position.

    Components inside it, by name, are built first and given the same.
    """
    keys = {k: v for k, v in node.items() if k != TARGET}
    for key, value in keys.items():
        if inner := _components(value):
            keys[key] = {name: build(group, own, *runtime) for name, own in inner.items()}
    return target(group, node)(*runtime, **keys)


def _components(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the components a value holds by name; a value holds them alone or not at all."""
    nodes = value if isinstance(value, Mapping) else {}
    inner = {k: v for k, v in nodes.items() if isinstance(v, Mapping) and TARGET in v}
    return inner if len(inner) == len(nodes) else {}
