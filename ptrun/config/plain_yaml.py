"""YAML of somebody else as plain data: no tag makes an object, and no alias makes it huge."""

import re
from typing import Any

import yaml

_CALL = re.compile(r"\$\{.*:", re.DOTALL)
_MOST_VALUES = 100_000


def load(text: str) -> Any:
    """Return the content of YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, or has a tag of Python.
        ValueError: aliases make it huge or endless, or a number has thousands of digits.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        _check_size(node)  # before `<<: [*a, *a]` is expanded
        return None if node is None else loader.construct_document(node)
    finally:
        loader.dispose()


def call(content: Any) -> str | None:
    """Return the first text that calls a resolver of OmegaConf; None if there is none.

    `${oc.env:NAME}` reads a variable of the environment, which may hold a secret.
    """
    left = [content]
    while left:
        inside = left.pop()
        if isinstance(inside, str) and _CALL.search(inside):
            return inside
        if isinstance(inside, dict):
            left += [*inside.keys(), *inside.values()]
        elif isinstance(inside, list):
            left += inside
    return None


def _check_size(node: Any) -> None:
    """Refuse YAML that its aliases make huge or endless: a line can stand for a billion values.

    Raises:
        ValueError: it holds more than 100,000 values.
    """
    left, count = [node], 0
    while left:
        inside = left.pop()
        count += 1
        if count > _MOST_VALUES:
            raise ValueError(f"more than {_MOST_VALUES:,} values; write it without aliases")
        if isinstance(inside, yaml.MappingNode):
            left += [part for pair in inside.value for part in pair if not _is_name(part, pair)]
        elif isinstance(inside, yaml.SequenceNode):
            left += inside.value


def _is_name(part: Any, pair: tuple[Any, Any]) -> bool:
    """Return whether a part of a pair is a plain key, which is no value."""
    return part is pair[0] and isinstance(part, yaml.ScalarNode)
