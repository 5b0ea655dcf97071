"""A paper's cell in the pocket world: `+scale=pocket` tries all of a table in seconds a cell."""

from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from ptrun.config.build import plain
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError

POCKET = "pocket"


def scaled(overrides: Sequence[str], scale: str | None) -> list[str]:
    """Return what is typed at a scale: as it is, or `pocket`.

    Raises:
        UserError: the scale is another, or has nothing in place of an option.
    """
    if scale is None:
        return list(overrides)
    if scale != POCKET:
        raise UserError(f"scale={scale}: unknown. Allowed: {POCKET}; leave it out for the paper's.")
    rules: dict[str, Any] = plain(OmegaConf.load(conf_dir() / "experiment" / "pocket.yaml"))  # type: ignore[arg-type]
    dropped = tuple(rules["drop"])
    scaled_down = [_instead(override, rules) for override in overrides]
    kept = [o for o in scaled_down if not o.lstrip("+~").startswith(dropped)]
    return [*kept, *rules["add"]]


def _instead(override: str, rules: Mapping[str, Any]) -> str:
    key, _, value = override.partition("=")
    if key not in ("backbone", "task", "setting"):
        return str(rules["instead"].get(key, override))
    known = rules[key]
    if key != "setting" and value not in known and not value.startswith("pocket_"):
        raise UserError(f"{override}: scale=pocket has nothing in its place (pocket.yaml).")
    return f"{key}={known.get(value, value)}"
