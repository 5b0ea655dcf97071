"""A nested configuration as one level of dotted keys."""

from collections.abc import Mapping
from typing import Any


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of a configuration by dotted key."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[f"{prefix}{key}"] = value
    return values
