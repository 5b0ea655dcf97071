"""The id of a run: a hash of everything in the configuration that can change a number."""

import hashlib
import json
import re
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any
from urllib.parse import quote

NOT_OF_A_RUN = ("tracking", "rerun", "keep", "sweep", "cluster", "expected")
"""What a configuration says about its command and its files."""
_NOT_AFFECTING = (*NOT_OF_A_RUN, "name", "outputs", "data_dir")
_MAX_BYTES = 120  # of one name in a path
_BY_START = ("pretraining", "continue")  # `start` has the id of the run that they describe
_ORDERED = ("labels", "pvps")  # mappings of a task whose order counts
_DESCRIBING = ("path", "dtype", "fp16", "lr", "parameters", "source", "families")  # of a backbone


def canonical(content: Any) -> str:
    """Return plain data as text that is equal for equal content: the order of keys is free.

    JSON has only texts as keys, so a key such as 0 is marked to differ from "0".
    """
    return json.dumps(_keyed(content), sort_keys=True, ensure_ascii=False, default=str)


def _keyed(content: Any) -> Any:
    if isinstance(content, list | tuple):
        return [_keyed(value) for value in content]
    if not isinstance(content, Mapping):
        return content
    return {k if isinstance(k, str) else f"\0{k!r}": _keyed(v) for k, v in content.items()}


def _digest(content: Mapping[str, Any]) -> str:
    orders = _orders(content["task"]) if isinstance(content.get("task"), Mapping) else {}
    ordered = {**content, "orders": orders} if orders else content
    return hashlib.sha256(canonical(ordered).encode()).hexdigest()[:8]


def _orders(task: Mapping[Any, Any], at: str = "") -> dict[str, list[str]]:
    """Return the keys of each `labels` and `pvps` of a task that are in no alphabetical order.

    Heads number the labels in this order, and the first pattern that fits is the default.
    """
    orders: dict[str, list[str]] = {}
    for key, value in task.items():
        if isinstance(value, Mapping):
            keys = [*map(str, value)]
            if key in _ORDERED and keys != sorted(keys):
                orders[f"{at}{key}"] = keys
            orders |= _orders(value, f"{at}{key}.")
    return orders


def affecting(config: Mapping[str, Any], data: str, weights: str) -> dict[str, Any]:
    """Return the configuration that can change a number, with contents in place of paths.

    `data` and `weights` identify the content of data files and model, and `start` that of another
    run. So a moved folder keeps its runs, and changed content makes new ones. Of a hub model or
    data set they have id and revision, not the commit: `ptrun.hub.repository` says why. Of the
    hardware only the precision counts: device, micro-batches, ranks and recomputation change
    rounding alone.
    """
    left_out = (*_NOT_AFFECTING, *_BY_START)
    content = {key: value for key, value in config.items() if key not in left_out}
    if content.get("start") in (None, "random"):
        content.pop("start", None)
    for key in ("trial", "forgetting"):
        if content.get(key) is None:
            content.pop(key, None)
    backbone = {
        k: v for k, v in content["backbone"].items() if v is not None and k not in _DESCRIBING
    }
    task = {key: value for key, value in content["task"].items() if not _is_left_out(key, value)}
    if isinstance(task.get("vocabulary"), str):  # a file of words; its content is in `data`
        task["vocabulary"] = Path(task["vocabulary"]).name
    if "_target_" in (task.get("source") or {}):  # `data` covers the rows that it makes
        task.pop("source")
    read = {key: _content(value) for key, value in (content.get("readout") or {}).items()}
    method = {key: _content(value) for key, value in content["method"].items()}
    parts = {"backbone": {**backbone, "weights": weights}, "method": method}
    parts |= {"readout": read} if read else {}
    return {**content, **parts, "task": task, "data": data}


def quantized(hardware: Mapping[str, Any]) -> dict[str, Any]:
    """Return the quantization of the backbone if there is any, so that other ids stay."""
    kind = hardware.get("quantization") or "none"
    return {} if kind == "none" else {"quantization": kind}


def _content(value: Any) -> Any:
    """Replace `@FILE` by `@` and a hash of the file; return other values unchanged."""
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    return "@" + hashlib.sha256(Path(value[1:]).expanduser().read_bytes()).hexdigest()[:16]


def _is_left_out(key: str, value: Any) -> bool:
    """Return whether a key of `task=csv` changes no number beside the content in `data`."""
    if key == "pattern":
        return value is None or str(value).startswith("@")
    if key == "quoting":  # the default changes nothing
        return value is None
    return key in ("train", "dev", "test") and isinstance(value, str | None)


def essence(
    content: Mapping[str, Any],
    defaults: Mapping[str, Mapping[str, Any]],
    unused: Mapping[str, Set[str]],
) -> dict[str, Any]:
    """Return the content that an id is made from.

    Args:
        content: of a run, as `affecting` returns it.
        defaults: of each group. A key at its default is left out, so that a new key moves no id.
        unused: keys of each group that change nothing in this run.
    """
    essential = dict(content)
    for group, usual in defaults.items():
        node, left_out = content.get(group), unused.get(group, set())
        if isinstance(node, Mapping):
            essential[group] = {
                key: value
                for key, value in node.items()
                if key not in left_out and not (key in usual and usual[key] == value)
            }
    return essential


def run_id(names: Mapping[str, str], essence: Mapping[str, Any]) -> str:
    """Return `method-backbone-task-setting-s<seed>-<8 hex>`."""
    parts = [names[group] for group in ("method", "backbone", "task", "setting")]
    return "-".join([*map(file_name, parts), f"s{int(essence['seed'])}", _digest(essence)])


def file_name(text: str) -> str:
    """Return text as one part of a path; special characters are encoded.

    A long text is cut and ends in a hash, because file systems allow 255 bytes.
    """
    name = re.sub(r"[^\w.+,=@~ -]", lambda match: quote(match[0], safe=""), text)
    if len(name.encode()) > _MAX_BYTES:
        name = f"{name[: _MAX_BYTES // 4]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return name if name.strip(".") else name.replace(".", "%2E")


def group_id(essence: Mapping[str, Any]) -> str:
    """Return 8 hexadecimal digits that the seeds of one table cell share."""
    return _digest({key: value for key, value in essence.items() if key != "seed"})


# A nested configuration as one level of dotted keys.


def flat(config: Mapping[str, Any], prefix: str = "", *, empties: bool = False) -> dict[str, Any]:
    """Return the values of a configuration by dotted key; `empties` keeps empty mappings too."""
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and (value or not empties):
            values |= flat(value, f"{prefix}{key}.", empties=empties)
        else:
            values[f"{prefix}{key}"] = value
    return values
