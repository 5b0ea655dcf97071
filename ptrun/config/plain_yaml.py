"""YAML of somebody else as plain data: no tag makes an object, and no alias makes it huge."""

from typing import Any

import yaml

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
