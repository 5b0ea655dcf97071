"""Python values in the grammar of Hydra's overrides."""

import re
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

from ptrun.errors import UserError

_BARE = re.compile(r"[A-Za-z/._][\w/.@:+-]*", re.ASCII)
_WORDS = ("true", "false", "null", "nan", "inf")  # Hydra reads them as values


def value_text(key: str, value: Any) -> str:
    """Return a value in the grammar of overrides; one that has none is refused by its `key`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, PathLike):
        value = fspath(value)
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value.lower() not in _WORDS else _quoted(value)
    if isinstance(value, Mapping):
        pairs = [(value_text(key, name), value_text(key, inner)) for name, inner in value.items()]
        return f"{{{', '.join(map(': '.join, pairs))}}}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"[{','.join(value_text(key, inner) for inner in value)}]"
    raise UserError(
        f"{key}: {value!r} is a {type(value).__name__}; expected a text, a number, True or False, "
        "None, a path, or a list or dict of these."
    )


def _quoted(value: str) -> str:
    """Return a text in double quotes; backslashes before a quote and at the end are doubled."""
    inner = re.sub(r'(\\*)"', r'\1\1\\"', value)
    return '"' + re.sub(r"(\\+)$", r"\1\1", inner) + '"'
