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
_ROOTS = [field.name for field in fields(RunConfig)]
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
    text = "\n".join(str(part) for part in _chain(error))
    for describe in (_several, _grammar, _option, _key, _value, _group, _merge):
        message = describe(error, text, overrides)
        if message:
            return UserError(message)
    return UserError(" ".join(str(error).split())[:300])


def _chain(error: BaseException | None) -> list[BaseException]:
    """Return an error and its causes, which may go in a circle, as OmegaConf's sometimes do."""
    errors: list[BaseException] = []
    while error is not None and all(error is not seen for seen in errors):
        errors.append(error)
        error = error.__cause__ or error.__context__
    return errors


def _several(_error: Exception, text: str, _overrides: Sequence[str]) -> str | None:
    """`seed=1,2` in one run."""
    match = re.search(r"Ambiguous value for argument '(.*?)'", text)
    if not match:
        return None
    key, _, value = match[1].lstrip("+").partition("=")
    if key.partition(".")[0] not in _ROOTS:
        return unknown(key, key, _ROOTS)
    if Path(value).expanduser().is_file():
        return f"{key}={value}: a name with a comma needs two pairs of quotes: '{key}=\"{value}\"'"
    listed = f", or '{key}=[{value}]' for a list" if "list" in (_kind(key) or "list") else ""
    return f"{key}={value}: several values. Type ptrun -m {key}={value} for a sweep{listed}."


def _grammar(error: Exception, _text: str, _overrides: Sequence[str]) -> str | None:
    """`task.pattern={text} {mask}`: unquoted characters of Hydra's grammar."""
    if not isinstance(error, OverrideParseException) or "=" not in error.override:
        return None
    key, _, value = visible(error.override.lstrip("+")).partition("=")
    quoted = "..." if {"'", '"'} & set(value) else value
    return (
        f"{key}={value}: not readable.\nA value with braces, parentheses, ~, = or quotes needs two "
        f"pairs of quotes: '{key}=\"{quoted}\"'"
    )


def _option(error: Exception, _text: str, _overrides: Sequence[str]) -> str | None:
    """`method=ptuning_v3`: no such option in the group."""
    if not isinstance(error, MissingConfigException) or not error.missing_cfg_file:
        return None
    group, _, option = error.missing_cfg_file.partition("/")
    return no_option(group, option)


def no_option(group: str, option: str) -> str | None:
    """Return why a group has no such option, and what to type; None if there is no such group."""
    if group == "backbone" and (option.startswith((".", "~", "/")) or Path(option).is_dir()):
        return f"backbone={option}: a folder; type backbone.path={option}"
    if group == "task" and TABLE.search(option):
        columns = "task.text=COLUMN task.label=COLUMN"
        return f"task={option}: a file; type task=csv task.train={option} {columns}"
    return unknown(f"{group}={option}", option, options(group)) if group in LISTED else None


def _key(_error: Exception, text: str, overrides: Sequence[str]) -> str | None:
    """`train.lrr=1`: no such key in a typed part."""
    match = re.search(r"Key '(\w+)' (?:is )?not in '(\w+)'", text)
    schemas = {schema.__name__: schema for schema in _SCHEMAS.values()}
    if not match or match[2] not in schemas:
        return None
    keys = [field.name for field in fields(schemas[match[2]])]
    typed = [o.split("=")[0].lstrip("+~") for o in overrides if match[1] in o.split("=")[0]]
    return unknown(typed[0] if typed else match[1], match[1], keys)


def _value(_error: Exception, text: str, _overrides: Sequence[str]) -> str | None:
    """`seed=abc`: a value of the wrong type in a typed part."""
    match = re.search(r"Value '(.*?)' .*could not be converted to (\w+)", text)
    match = match or re.search(r"Invalid value '(.*?)', expected one of (\[.*?\])", text)
    key = re.search(r"full_key: ([\w.]+)", text)
    if not match:
        return None
    kind = _PLAIN.get(match[2], match[2])
    return f"{key[1] if key else 'value'}: expected {kind}, got {match[1]!r}."


def _merge(_error: Exception, text: str, _overrides: Sequence[str]) -> str | None:
    """`train=x`, `seed=null`: a part has keys, and a key of the root needs a value."""
    match = re.search(r"Error merging override '?(?:\+\+)?([\w.]+)=(\S*)", text)
    if not match:
        return None
    if "." in match[1] and (kind := _kind(match[1])):
        kind = f"a list, such as {match[1]}=[A,B]" if "list" in kind else kind
        return f"{match[1]}={match[2]}: expected {kind}."
    if match[1] not in ("train", "sweep", "cluster", "pretraining"):
        return f"{match[1]}={match[2]}: a value is needed. Type {match[1]}=VALUE."
    file = f" For a file: task=csv task.train={match[2]}" if TABLE.search(match[2]) else ""
    return f"{match[1]}={match[2]}: it has keys; type {match[1]}.KEY=VALUE.{file}"


def _kind(key: str) -> str | None:
    """Return the type of a key of a typed part, as text; None for other keys."""
    root, _, last = key.rpartition(".")
    kind = get_type_hints(_SCHEMAS.get(root, type)).get(last)
    return None if kind is None else getattr(kind, "__name__", str(kind))


def _group(_error: Exception, text: str, _overrides: Sequence[str]) -> str | None:
    """`metod=x`: no such group or key."""
    match = re.search(r"Could not override '([\w.@/]+)'", text)
    if not match:
        return None
    root, _, key = match[1].partition(".")
    schema = _SCHEMAS.get(root if key else "", RunConfig)
    return unknown(match[1], key or root, [field.name for field in fields(schema)])
