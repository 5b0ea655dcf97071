"""Translate errors of Hydra and OmegaConf into one or two lines that say what to type."""

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ptrun.config.paths import options
from ptrun.config.schema import (
    KEYS,
    LISTED,
    ClusterConfig,
    PretrainingConfig,
    RunConfig,
    SweepConfig,
    TrainConfig,
)
from ptrun.errors import UserError, explained, unknown, visible

ERRORS = (HydraException, OmegaConfBaseException, YAMLError, UnicodeError)
"""What composing raises."""
KINDS, PACKED = r"\.(csv|tsv|jsonl?|parquet|arrow|xlsx)", r"\.(gz|bz2|xz|zst|zip)"
TABLE = re.compile(f"{KINDS}({PACKED})?$", re.IGNORECASE)
"""The end of the name of a table, packed or not."""
_PLAIN = {"Integer": "int", "Float": "float", "Boolean": "true or false"}
_SCHEMAS: dict[str, Any] = {
    "": RunConfig,
    "train": TrainConfig,
    "pretraining": PretrainingConfig,
    "sweep": SweepConfig,
    "cluster": ClusterConfig,
}


def explain(error: Exception, overrides: Sequence[str]) -> UserError:
    """Return an error of `ERRORS` as a `UserError`."""
    if isinstance(error, YAMLError | UnicodeError):
        return explained(error) or UserError(str(error))
    chain: list[BaseException] = []  # its causes may go in a circle
    cause: BaseException | None = error
    while cause is not None and all(cause is not seen for seen in chain):
        chain.append(cause)
        cause = cause.__cause__ or cause.__context__
    message = _message(error, "\n".join(map(str, chain)), overrides)
    return UserError(message or " ".join(str(error).split())[:300])


def _message(error: Exception, text: str, overrides: Sequence[str]) -> str | None:
    """Return what an error with this text says; None if it is none of these."""
    # 1. `seed=1,2` in one run
    if match := re.search(r"Ambiguous value for argument '(.*?)'", text):
        key, _, value = match[1].lstrip("+").partition("=")
        if key.partition(".")[0] not in KEYS:
            return unknown(key, key, KEYS)
        if Path(value).expanduser().is_file():
            return (
                f"{key}={value}: a name with a comma needs two pairs of quotes: '{key}=\"{value}\"'"
            )
        listed = f", or '{key}=[{value}]' for a list" if "list" in (_kind(key) or "list") else ""
        return f"{key}={value}: several values. Type ptrun -m {key}={value} for a sweep{listed}."
    # 2. `task.pattern={text} {mask}`: unquoted characters of Hydra's grammar
    if isinstance(error, OverrideParseException) and "=" in error.override:
        key, _, value = visible(error.override.lstrip("+")).partition("=")
        quoted = "..." if {"'", '"'} & set(value) else value
        return (
            f"{key}={value}: not readable.\nA value with braces, parentheses, ~, = or quotes needs "
            f"two pairs of quotes: '{key}=\"{quoted}\"'"
        )
    # 3. `method=ptuning_v3`: no such option in the group
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, option = error.missing_cfg_file.partition("/")
        if message := no_option(group, option):
            return message
    # 4. `train.lrr=1`: no such key in a typed part
    schemas = {schema.__name__: schema for schema in _SCHEMAS.values()}
    match = re.search(r"Key '(\w+)' (?:is )?not in '(\w+)'", text)
    if match and match[2] in schemas:
        keys = _keys(schemas[match[2]])
        typed = [o.split("=")[0].lstrip("+~") for o in overrides if match[1] in o.split("=")[0]]
        return unknown(typed[0] if typed else match[1], match[1], keys)
    # 5. `seed=abc`: a value of the wrong type in a typed part
    match = re.search(r"Value '(.*?)' .*could not be converted to (\w+)", text)
    if match := match or re.search(r"Invalid value '(.*?)', expected one of (\[.*?\])", text):
        full = re.search(r"full_key: ([\w.]+)", text)
        kind = _PLAIN.get(match[2], match[2])
        return f"{full[1] if full else 'value'}: expected {kind}, got {match[1]!r}."
    # 6. `metod=x`: no such group or key
    if match := re.search(r"Could not override '([\w.@/]+)'", text):
        root, _, key = match[1].partition(".")
        schema = _SCHEMAS.get(root if key else "", RunConfig)
        return unknown(match[1], key or root, _keys(schema))
    # 7. `train=x`, `seed=null`: a part has keys, and a key of the root needs a value
    if not (match := re.search(r"Error merging override '?(?:\+\+)?([\w.]+)=(\S*)", text)):
        return None
    key, value = match[1], match[2]
    if "." in key and (expected := _kind(key)):
        expected = f"a list, such as {key}=[A,B]" if "list" in expected else expected
        return f"{key}={value}: expected {expected}."
    if key not in _SCHEMAS:
        return f"{key}={value}: a value is needed. Type {key}=VALUE."
    file = f" For a file: task=csv task.train={value}" if TABLE.search(value) else ""
    return f"{key}={value}: it has keys; type {key}.KEY=VALUE.{file}"


def _keys(schema: Any) -> Sequence[str]:
    return KEYS if schema is RunConfig else [field.name for field in fields(schema)]


def _kind(key: str) -> str | None:
    """Return the type of a key of a typed part, as text; None for other keys."""
    root, _, last = key.rpartition(".")
    kind = get_type_hints(_SCHEMAS.get(root, type)).get(last)
    return None if kind is None else getattr(kind, "__name__", str(kind))


def no_option(group: str, option: str) -> str | None:
    """Return why a group has no such option, and what to type; None if there is no such group."""
    if group == "backbone" and (option.startswith((".", "~", "/")) or Path(option).is_dir()):
        return f"backbone={option}: a folder; type backbone.path={option}"
    if group == "task" and TABLE.search(option):
        columns = "task.text=COLUMN task.label=COLUMN"
        return f"task={option}: a file; type task=csv task.train={option} {columns}"
    return unknown(f"{group}={option}", option, options(group)) if group in LISTED else None
