"""Check values from YAML against the annotations of constructors."""

import json
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin


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
    return _fits_plain(value, annotation)


def _fits_plain(value: Any, annotation: Any) -> bool:
    if annotation is Any:
        return True
    if annotation in (None, type(None)):
        return value is None
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(annotation, type) or isinstance(value, annotation)


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
