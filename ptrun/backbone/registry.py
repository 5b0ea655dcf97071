"""Which family the models of a `model_type` belong to."""

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from ptrun.backbone import causal, seq2seq
from ptrun.backbone.family import Family, reading
from ptrun.config import plain_yaml
from ptrun.config.build import build
from ptrun.config.paths import conf_dir
from ptrun.errors import UserError


def families() -> dict[str, Family]:
    """Return the families that ptrun knows, by `model_type`."""
    from ptrun.backbone import masked  # with transformers, whose import takes seconds

    return {**masked.KINDS, **causal.KINDS, **seq2seq.KINDS}


def family_of(
    name: str, config: Mapping[str, Any], outside: Mapping[str, Family] = MappingProxyType({})
) -> Family:
    """Return the family of a config.json; a model type that has no entry is read.

    `ptrun.backbone.probe` reads how its layers attend; layers that it cannot enter stay closed.

    `outside` has families of an option by model type, which come first. The folder of a model alone
    has the family that another option names for its type.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in outside:
        return outside[kind]
    if kind in (table := families()):
        return table[kind]
    if isinstance(kind, str) and (family := _of_an_option(kind)) is not None:
        return family
    from ptrun.backbone.closed import closed
    from ptrun.backbone.probe import probed

    with reading(name, "config.json"):
        try:
            return probed(config)
        except UserError as error:
            why = str(error)
        try:
            return closed(config, why)
        except UserError as error:
            raise UserError(f"backbone={name}: {error}") from error


@cache
def _of_an_option(kind: str) -> Family | None:
    """Return the family that an option of ptrun names for a model type; None if none does."""
    for file in sorted((conf_dir() / "backbone").glob("*.yaml")):
        text = file.read_text(encoding="utf-8", errors="replace")
        if "families:" in text and kind in text:
            node = plain_yaml.read(file).get("families") or {}
            if kind in node:
                family: Family = build("backbone", node[kind])
                return family
    return None
