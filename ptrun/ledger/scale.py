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
    return [*(o for override in overrides for o in _scaled(override, rules)), *rules["add"]]


def _scaled(override: str, rules: Mapping[str, Any]) -> list[str]:
    """Return what stands for an override; nothing for one that suits the paper's data alone."""
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
        raise UserError(f"{override}: scale=pocket has nothing in its place (pocket.yaml).")
    return [f"{key}={known.get(value, value)}"]
