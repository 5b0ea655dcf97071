"""Older keys: read-outs were keys of `method`, and are the group `readout`.

Typed keys, the user's own files, and the configurations of run folders are translated.
"""

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

from ptrun.config import plain_yaml
from ptrun.config.components import TARGET, typed
from ptrun.config.paths import conf_dir

_LOG = logging.getLogger(__name__)
_OPTION = "readout"
_KEYS = {
    **{key: key for key in ("pooler", "pattern", "among", "closed", "objective", "scored")},
    **{key: key for key in ("swapped", "random_masks", "literal_sep", "sentinel")},
    **{key: key for key in ("shifted_label", "released_query", "threshold", "threshold_on")},
    "head_dropout": "dropout",
    "score_direction": "direction",
    "class_bias": "bias",
    "class_loss": "loss",
    "class_order": "order",
    "class_marker": "marker",
}


def current(
    config: Mapping[str, Any], names: Mapping[str, str] | None = None, *, tell: bool = False
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a configuration and its options with today's keys.

    Only methods of ptrun are translated: a key of the user's own class is its own. `tell` warns of
    each key, with what to type; without it, a recorded configuration is meant, whose keys at their
    default say nothing.
    """
    content, options = dict(config), dict(names or {})
    if not tell and isinstance(hardware := content.get("hardware"), Mapping):
        content["hardware"] = {k: v for k, v in hardware.items() if k != "compile"}
    method = content.get("method")
    if isinstance(method, Mapping) and str(method.get(TARGET)).startswith("ptrun."):
        content["method"], moved, option = _divided(method)
        if option is not None and option in _nodes():
            usual = _nodes()[option]
            content[_OPTION] = {TARGET: usual[TARGET], **_without_target(content)}
            options[_OPTION] = option
            if not tell:
                moved = {k: v for k, v in moved.items() if k in usual and usual[k] != v}
        if moved or _OPTION not in content:
            content[_OPTION] = {**(content.get(_OPTION) or {}), **moved}
            options.setdefault(_OPTION, "auto")
        if tell and (moved or option):
            _tell({**({_OPTION: option} if option else {}), **_typed(moved)})
    first = content.get("pretraining")
    if isinstance(first, Mapping) and isinstance(first.get("method"), Mapping):
        method, moved, _ = _divided(first["method"])
        content["pretraining"] = {**first, "method": method}
        content["pretraining"][_OPTION] = {**(first.get(_OPTION) or {}), **moved}
    return content, options


def current_key(key: str) -> str:
    """Return a dotted key as it is called today: `method.class_bias` is `readout.bias`."""
    group, _, name = key.partition(".")
    if group != "method":
        return key
    return _OPTION if name == _OPTION else f"{_OPTION}.{_KEYS[name]}" if name in _KEYS else key


def _divided(method: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Return the keys of a method, those of its read-out, and the option of the read-out."""
    kept = {key: value for key, value in method.items() if key not in (*_KEYS, _OPTION)}
    moved = {_KEYS[key]: value for key, value in method.items() if key in _KEYS}
    return kept, moved, method.get(_OPTION)


def _without_target(content: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (content.get(_OPTION) or {}).items() if key != TARGET}


def _typed(moved: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{_OPTION}.{key}": value for key, value in moved.items()}


@cache
def _nodes() -> dict[str, dict[str, Any]]:
    """Return the shipped options of `readout`: the class and the default of each key."""
    files = (conf_dir() / _OPTION).glob("*.yaml")
    return {file.stem: plain_yaml.read(file) or {} for file in files}


_told: set[str] = set()


def _tell(keys: Mapping[str, Any]) -> None:
    """Say once what to type in place of old keys."""
    line = " ".join(f"{key}={typed(value)}" for key, value in keys.items())
    if line not in _told:
        _told.add(line)
        _LOG.warning("read-outs are keys of `readout` now, not of `method`. Type %s", line)
