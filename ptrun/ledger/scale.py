"""A paper's cell at pocket scale: `+scale=pocket` tries each cell of a table in seconds."""

from collections.abc import Mapping, Sequence
from typing import Any

from ptrun.config import plain_yaml
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError

POCKET = "pocket"


def scaled(overrides: Sequence[str], scale: str | None) -> list[str]:
    """Return the overrides for a scale; None keeps them as they are.

    Raises:
        UserError: the scale is unknown, or it has no replacement for an option.
    """
    if scale is None:
        return list(overrides)
    if scale != POCKET:
        raise UserError(
            f"scale={scale}: unknown. Allowed: {POCKET}; without scale= the paper's runs are used."
        )
    rules: dict[str, Any] = plain_yaml.read(conf_dir() / "experiment" / "pocket.yaml")
    replaced = [own for override in overrides for own in _scaled(override, rules)]
    several = f"task={POCKET}_multi" in replaced  # its tasks have sources, itself it has none
    return [*replaced, *rules["add"], *([] if several else [rules["rows"]])]


def _scaled(override: str, rules: Mapping[str, Any]) -> list[str]:
    """Return the replacement of an override; empty if it only suits the paper's data."""
    key, _, value = override.partition("=")
    for named in (override, key):
        if named in rules["instead"]:
            return str(rules["instead"][named]).split()
    if override.lstrip("+~").startswith(tuple(rules["drop"])):
        return []
    if key not in ("backbone", "task", "setting"):
        return [override]
    known = rules[key]
    if key != "setting" and value not in known and not value.startswith("pocket_"):
        raise UserError(f"{override}: scale=pocket has no replacement for it (pocket.yaml).")
    return [f"{key}={known.get(value, value)}"]
