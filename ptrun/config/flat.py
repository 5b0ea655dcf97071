"""A nested configuration as one level of dotted keys."""

from collections.abc import Mapping
from typing import Any


def flat(config: Mapping[str, Any], prefix: str = "", *, empties: bool = False) -> dict[str, Any]:
    """Return the values of a configuration by dotted key; `empties` keeps empty mappings too."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and (value or not empties):
            values |= flat(value, f"{prefix}{key}.", empties=empties)
        else:
            values[f"{prefix}{key}"] = value
    return values
