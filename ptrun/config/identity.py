"""A run's name: one configuration is one folder, and a change that moves a number another."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

_BESIDE_THE_NUMBERS = ("name", "outputs", "tracking", "rerun", "expected", "data_dir")
_LONGEST = 120  # bytes of one name in a path
_BY_START = ("pretraining",)  # `start` names the run that it describes


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def affecting(config: Mapping[str, Any], data: str, weights: str) -> dict[str, Any]:
    """Return what can change a number: the configuration, with contents in place of paths.

    `data` and `weights` identify the local data files and the local model; a folder that moves
    keeps its runs, a folder whose content changes gets new ones. So `start` should name another
    run by its content; a random start needs no name.
    """
    left_out = (*_BESIDE_THE_NUMBERS, *_BY_START)
    kept = {key: value for key, value in config.items() if key not in left_out}
    if kept.get("start") in (None, "random"):
        kept.pop("start", None)
    backbone = {key: value for key, value in kept["backbone"].items() if key != "path"}
    task = {key: value for key, value in kept["task"].items() if not _names_file(key, value)}
    if isinstance(task.get("vocabulary"), str):  # a file of words; its content is in `data`
        task["vocabulary"] = Path(task["vocabulary"]).name
    if "corpus" in (task.get("source") or {}):  # what is made of it, and how, is in `data`
        task.pop("source")
    method = {key: _content(value) for key, value in kept["method"].items()}
    told = {"backbone": {**backbone, "weights": weights}, "method": method}
    return {**kept, **told, "task": task, "data": data}


def _content(value: Any) -> Any:
    """Return `@` and a hash of the content in place of `@FILE`; any other value as it is."""
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    return "@" + hashlib.sha256(Path(value[1:]).expanduser().read_bytes()).hexdigest()[:16]


def _names_file(key: str, value: Any) -> bool:
    """Return whether a value of `task=csv` names a file, or none; `data` tells the content."""
    if key == "pattern":
        return value is None or str(value).startswith("@")
    return key in ("train", "dev", "test") and isinstance(value, str | None)


def run_id(names: Mapping[str, str], content: Mapping[str, Any]) -> str:
    """Return `method-backbone-task-setting-s<seed>-<8 hex>`."""
    parts = [names[group] for group in ("method", "backbone", "task", "setting")]
    return "-".join([*map(file_name, parts), f"s{int(content['seed'])}", _digest(content)])


def file_name(text: str) -> str:
    """Return text as one part of a path; signs that have a meaning in paths are encoded.

    A long text is cut and ends in a hash, because file systems allow 255 bytes.
    """
    name = re.sub(r"[^\w.+,=@~ -]", lambda sign: quote(sign[0], safe=""), text)
    if len(name.encode()) > _LONGEST:
        name = f"{name[: _LONGEST // 4]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return name if name.strip(".") else name.replace(".", "%2E")


def group_id(content: Mapping[str, Any]) -> str:
    """Return 8 hex that the seeds of one table cell share."""
    return _digest({key: value for key, value in content.items() if key != "seed"})
