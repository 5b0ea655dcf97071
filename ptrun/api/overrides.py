"""Python values as the overrides of a command line."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any

from ptrun.errors import UserError

_BARE = re.compile(r"[A-Za-z/._][\w/.@:+-]*", re.ASCII)
_WORDS = ("true", "false", "null", "nan", "inf")  # Hydra reads them as values


def typed(overrides: Iterable[str], values: Mapping[str, Any]) -> list[str]:
    """Return overrides, and values as overrides: `train={"lr": 1e-2}` is `train.lr=0.01`.

    Raises:
        UserError: an override is not KEY=VALUE, or a value has no form on a command line.
    """
    given = [overrides] if isinstance(overrides, str) else list(overrides)
    for one in given:
        if not isinstance(one, str) or not ("=" in one or one.startswith("~")):
            raise UserError(f"{one!r}: expected 'KEY=VALUE', such as 'method=ptuning_v2'.")
    own = [*given, *(f"{key}={_text(key, value)}" for key, value in _flat(values))]
    for one in own:
        _check(one)
    return own


def _flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _check(override: str) -> None:
    """Refuse what only the command line does."""
    key = override.lstrip("+~").partition("=")[0]
    if key == "experiment":
        raise UserError(
            f"{override}: tables of papers run on the command line. Type ptrun {override}."
        )
    if key.startswith(("hydra.", "hydra/")):
        raise UserError(f"{override}: Hydra's own settings have no effect. Leave it out.")


def _text(key: str, value: Any) -> str:
    """Return a value in the grammar of overrides."""
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
        return value if _is_bare(value) else _quoted(value)
    if isinstance(value, Mapping):
        parts = (f"{_text(key, own)}: {_text(key, inner)}" for own, inner in value.items())
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"[{','.join(_text(key, own) for own in value)}]"
    raise UserError(
        f"{key}: {value!r} is a {type(value).__name__}; expected a text, a number, True or False, "
        "None, a path, or a list or dict of these."
    )


def _is_bare(value: str) -> bool:
    return _BARE.fullmatch(value) is not None and value.lower() not in _WORDS


def _quoted(value: str) -> str:
    """Return a text in single quotes; backslashes before a quote and at the end are doubled."""
    inner = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return "'" + re.sub(r"(\\+)$", r"\1\1", inner) + "'"
