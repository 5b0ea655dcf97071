"""Change a composed configuration by overrides, and find files that do not exist."""

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ptrun.config.build import plain
from ptrun.config.compose import loosen
from ptrun.config.explain import explain
from ptrun.config.identity import flat
from ptrun.errors import UserError, unknown

PLACES = ("data_dir", "backbone.path", "task.train", "task.dev", "task.test", "method.glove")


def at(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted key; None if there is none."""
    value: Any = config
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted key, whose parent exists."""
    parents, _, last = path.rpartition(".")
    node = at(config, parents) if parents else config
    if not isinstance(node, dict):
        raise UserError(unknown(path, parents.rpartition(".")[2], config))
    node[last] = value


def read(overrides: Sequence[str]) -> list[Override]:
    """Return overrides as Hydra reads them."""
    try:
        return OverridesParser.create().parse_overrides([loosen(o) for o in overrides])
    except HydraException as error:
        raise explain(error, overrides) from error


def parsed(typed: str) -> Any:
    """Return the value of an override as Hydra reads it, with `~` of a folder expanded."""
    key, _, text = typed.partition("=")
    (override,) = read([typed])
    if override.is_sweep_override():
        raise UserError(
            f"{typed}: several values; this command takes one. Type '{key}=[{text}]' for a list."
        )
    value = override.value()
    if key in PLACES:
        return os.path.expanduser(value if isinstance(value, str) else text)
    return plain(OmegaConf.create({"": value}))[""]


def gone(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of files and folders that do not exist."""
    for key, value in flat(config).items():
        if not isinstance(value, str) or not value:
            continue
        file = value[1:] if value.startswith("@") else value if key in PLACES else None
        here = key.startswith(("method.", "readout.", "task.pattern")) or key in PLACES
        if file and here and not Path(file).expanduser().exists():
            yield key, value


# The runs of a sweep: `seed=1,2 task=sst2,cb` is four runs.


def expanded(overrides: Sequence[str]) -> list[tuple[tuple[str, ...], str]]:
    """Return the overrides and title of each job; the first key varies slowest."""
    choices = [
        [f"{line.partition('=')[0]}={value}" for value in override.sweep_string_iterator()]
        if override.is_sweep_override()
        else [line]
        for override, line in zip(read(overrides), overrides, strict=True)
    ]
    varied = [len(values) > 1 for values in choices]
    return [
        (job, " ".join(o.lstrip("+") for o, varies in zip(job, varied, strict=True) if varies))
        for job in product(*choices)
    ]
