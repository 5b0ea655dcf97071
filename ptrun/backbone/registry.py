"""Which family the models of a `model_type` belong to."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ptrun.backbone import causal, seq2seq
from ptrun.backbone.family import Family


def families() -> dict[str, Family]:
    """Return the families that ptrun knows, by `model_type`."""
    from ptrun.backbone import masked  # with transformers, whose import takes seconds

    return {**masked.KINDS, **causal.KINDS, **seq2seq.KINDS}


def family_of(
    name: str, config: Mapping[str, Any], outside: Mapping[str, Family] = MappingProxyType({})
) -> Family:
    """Return the family of a config.json; a model type that has no entry is probed.

    `outside` has families of an option by model type, which come first.
    """
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in outside:
        return outside[kind]
    if kind in (table := families()):
        return table[kind]
    from ptrun.backbone.probe import probed

    return probed(name, config)
