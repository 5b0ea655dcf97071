"""Build an object from a YAML node; the signature of its constructor is the schema.

The run passes positional parameters, and YAML gives keyword-only ones. All problems of all nodes
are reported together before anything is built.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Unpack, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config.components import TARGET, component, fits, spell, targets
from ptrun.errors import UserError, near

_MADE = ("task", "source")  # the rows of a task may be made by a class


@dataclass(frozen=True)
class Component:
    """A checked node of a group; `build` takes the arguments that the run passes."""

    group: str
    node: Mapping[str, Any]

    @property
    def target(self) -> Any:
        """The class it names."""
        return target(self.group, self.node)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each key that has one, as plain data."""
        return {
            key.name: key.default
            for key in inspect.signature(self.target).parameters.values()
            if key.kind is key.KEYWORD_ONLY and key.default is not key.empty
        }

    def build(self, *runtime: Any) -> Any:
        """Return the object; `runtime` are its positional arguments."""
        return build(self.group, self.node, *runtime)


def target(group: str, node: Mapping[str, Any]) -> Any:
    """Return the class that a component node of a group names."""
    return component(group, node.get(TARGET))


def problems(
    group: str, node: Mapping[str, Any], path: str = "", part: Callable[..., Any] | None = None
) -> list[str]:
    """Return the problems of a component node, one line each; empty if it can be built.

    `path` is the key of a node that is inside another one; `part` takes the place of its class.
    """
    path, values = path or group, {str(key): value for key, value in node.items() if key != TARGET}
    allowed, hints, needed = _schema(part or target(group, node))
    lines = [
        f"{path}.{key}: unknown{near(key, allowed) or '.'} "
        f"Allowed: {', '.join(allowed) or 'nothing'}."
        for key in values.keys() - set(allowed)
    ]
    for key, value in values.items():
        inner = _components(value)
        for name, inside in inner.items():
            lines += problems(group, inside, f"{path}.{key}.{name}")
        if (group, key) == _MADE and isinstance(value, Mapping) and TARGET in value:
            lines += problems(group, value, f"{path}.{key}")
        elif not inner and any(True for _ in targets(value)):
            lines.append(f"{path}.{key}: a component is not allowed here. Remove its {TARGET}.")
        if key in hints and not fits(value, hints[key]):
            lines.append(f"{path}.{key}: expected {spell(hints[key])}, got {value!r}.")
    lines += [
        f"{path}.{key}: missing. Type {path}.{key}=..." for key in needed if key not in values
    ]
    return sorted(lines)


@cache
def _schema(part: Callable[..., Any]) -> tuple[list[str], dict[str, Any], list[str]]:
    """Return the YAML keys of a component, their types, and the required keys.

    `**common: Unpack[Fields]` stands for the keys of that TypedDict.
    """
    constructor = part.__init__ if inspect.isclass(part) else part
    every = get_type_hints(constructor)
    hints: dict[str, Any] = {}
    needed: list[str] = []
    for name, parameter in inspect.signature(part).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            hints[name] = every.get(name, Any)
            needed += [name] if parameter.default is parameter.empty else []
        elif parameter.kind is parameter.VAR_KEYWORD and get_origin(every[name]) is Unpack:
            (fields,) = get_args(every[name])
            hints |= get_type_hints(fields)
            needed += sorted(fields.__required_keys__)
    return list(hints), hints, needed


def plain(node: DictConfig) -> dict[str, Any]:
    """Return a node as plain dicts and lists, interpolations resolved."""
    try:
        container = OmegaConf.to_container(
            node, resolve=True, throw_on_missing=True, enum_to_str=True
        )
    except OmegaConfBaseException as error:
        raise UserError(f"{error.full_key}: {str(error).splitlines()[0]}") from error
    return container  # type: ignore[return-value]


def check(nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse component nodes by group that cannot be built, with a line for each problem."""
    if lines := [line for group, node in nodes.items() for line in problems(group, node)]:
        raise UserError("\n".join(lines))


def build(group: str, node: Mapping[str, Any], *runtime: Any) -> Any:
    """Return the component of a checked node; `runtime` are its positional arguments.

    Components inside it are built first, with the same arguments.
    """
    keys = {k: v for k, v in node.items() if k != TARGET}
    for key, value in keys.items():
        if inner := _components(value):
            keys[key] = {name: build(group, part, *runtime) for name, part in inner.items()}
    return target(group, node)(*runtime, **keys)


def _components(value: Any) -> dict[str, Mapping[str, Any]]:
    """Return the components in a value by name; empty if it holds anything else."""
    nodes = value if isinstance(value, Mapping) else {}
    inner = {k: v for k, v in nodes.items() if isinstance(v, Mapping) and TARGET in v}
    return inner if len(inner) == len(nodes) else {}
