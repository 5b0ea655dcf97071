"""`run.yaml`: what a run was asked for, with its paths, so that it can be asked for again.

`result.json` holds what decides the numbers: contents in place of paths, and as JSON, where a
label that is a number turns into text. This file has the composed configuration as it went in.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config.compose import Composed
from ptrun.config.schema import GROUPS, RunConfig
from ptrun.errors import UserError

FILE = "run.yaml"
_NOT_KEPT = ("tracking", "rerun", "expected")
_ALWAYS = ("name", "seed", "data_seed", "outputs", "train")
_HEAD = "# What this run was asked for. `ptrun rerun` with this folder asks for it again.\n"


def write(folder: Path, composed: Composed) -> None:
    """Write what was asked for: no tracking, and no folder that the environment gave."""
    config = {key: value for key, value in composed.config.items() if key not in _NOT_KEPT}
    if config.get("data_dir") == os.path.expanduser(os.environ.get("PTRUN_DATA", "")):
        config["data_dir"] = None
    names = {group: name for group, name in composed.names.items() if group not in _NOT_KEPT}
    content = yaml.safe_dump(
        {"names": names, "config": config}, allow_unicode=True, sort_keys=False, width=100
    )
    draft = folder / f".{FILE}.{os.getpid()}"
    draft.write_text(_HEAD + content, encoding="utf-8")
    draft.replace(folder / FILE)


def read(folder: Path) -> Composed | None:
    """Return what a run was asked for, as far as it is kept; None where it is older than that.

    Raises:
        UserError: the file is damaged.
    """
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        found: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        composed = Composed(found["config"], found["names"])
    except (yaml.YAMLError, UnicodeDecodeError, TypeError, KeyError) as error:
        told = str(error).splitlines()[0]
        raise UserError(f"{file}: damaged ({told}); type the run's own command again.") from error
    if not all(isinstance(part, Mapping) for part in (composed.config, composed.names)):
        raise UserError(f"{file}: damaged; type the run's own command again.")
    groups = [group for group in GROUPS if group not in _NOT_KEPT]
    wanted = ((composed.config, (*groups, *_ALWAYS)), (composed.names, groups))
    if lost := [key for part, keys in wanted for key in keys if key not in part]:
        missing = ", ".join(dict.fromkeys(lost))  # a default in its place would be another run
        raise UserError(f"{file}: damaged ({missing} lost); type the run's own command again.")
    if wrong := _wrong(composed):
        raise UserError(f"{file}: damaged ({wrong}); type the run's own command again.")
    return composed


def _wrong(composed: Composed) -> str | None:
    """Return which value has a type that no run writes."""
    for name in composed.names.values():
        if not isinstance(name, str):
            return f"name {name!r}"
    try:
        OmegaConf.merge(OmegaConf.structured(RunConfig), composed.config)
    except OmegaConfBaseException as error:
        return f"{error.full_key}: {str(error).splitlines()[0]}"
    return None
