"""`run.yaml`: the composed configuration of a run, with its paths, for `ptrun rerun`.

`result.json` cannot replace it: that has contents in place of paths, and JSON turns numbers that
are labels into text.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ptrun.config import plain_yaml
from ptrun.config.compose import Composed, compose_run
from ptrun.config.identity import NOT_OF_A_RUN, flat
from ptrun.config.paths import options
from ptrun.config.schema import GROUPS, root
from ptrun.errors import UserError
from ptrun.files import read_text, write_text
from ptrun.folder import result
from ptrun.folder.digest import DAMAGES
from ptrun.hub.repository import COMMIT

FILE = "run.yaml"

_ALWAYS = ("name", "seed", "data_seed", "outputs", "train")
_TYPED = ("method", "readout", "backbone", "task", "setting", "protocol")
_HEAD = "# The configuration of this run. `ptrun rerun` with this folder repeats the run.\n"


def write(folder: Path, composed: Composed) -> None:
    """Write a configuration without tracking and without a folder from the environment."""
    config = {key: value for key, value in composed.config.items() if key not in NOT_OF_A_RUN}
    if config.get("data_dir") == os.path.expanduser(os.environ.get("PTRUN_DATA", "")):
        config["data_dir"] = None
    names = {group: name for group, name in composed.names.items() if group not in NOT_OF_A_RUN}
    content: dict[str, Any] = {"names": names, "config": config, "commits": composed.commits}
    if composed.needs:
        content["needs"] = composed.needs
    write_text(folder / FILE, _HEAD + plain_yaml.dump(content))


def command(run: Composed, *more: str) -> str:
    """Return the command that does a run again from the current folder, with its own data.

    What a run of these options does by itself is left out. `more` has keys beside those of its id.
    """
    from ptrun.config.writing import value_text  # a run does not need it

    names = {group: name for group, name in run.names.items() if group in _TYPED}
    if names["readout"] == "auto":
        names.pop("readout")
    if names["task"] not in options("task"):
        names["task"] = "hub" if run.config["task"].get("hub") else "csv"
    path, option = (run.config["backbone"].get(key) for key in ("path", "name"))
    named = path or option == "hub"  # results show another name than that of the option
    if named and option in options("backbone"):
        names["backbone"] = option
    elif path:
        names.pop("backbone")
    typed = [*(f"{group}={name}" for group, name in names.items())]
    typed += [f"backbone.path={path}"] if path else []
    base, now = flat(compose_run(typed).config), flat(run.config)
    keys = (*_TYPED, "train", "seed", "data_seed", "start", "continue", *more)
    changed = {
        key: value
        for key, value in now.items()
        if key.partition(".")[0] in keys and base.get(key) != value
    }
    typed += [f"{'' if k in base else '+'}{k}={value_text(k, v)}" for k, v in changed.items()]
    return " ".join(["ptrun", *map(shlex.quote, typed)])


def needs(folder: Path) -> tuple[str, ...]:
    """Return the ids of the runs that a run needs; none where no file says so."""
    try:
        _, _, listed = read_text(folder / FILE, "replace").partition("\nneeds:\n")
    except OSError:
        return ()
    return tuple(line.removeprefix("- ").strip("'") for line in listed.splitlines())


def read(folder: Path) -> Composed:
    """Return the configuration of a run.

    A tracker, a cluster or a sweep is never written, so one in the file is somebody else's.
    """
    file, done = folder / FILE, result.read(folder)
    try:
        text = read_text(file)
        if done is not None:
            result.check_beside(done, file)
        content = plain_yaml.load_plain(text)
        config = {k: v for k, v in content["config"].items() if k not in NOT_OF_A_RUN}
        composed = Composed(config, content["names"], content.get("commits", {}))
        _check(composed)
    except (OSError, yaml.YAMLError, OmegaConfBaseException, *DAMAGES) as error:
        key = f"{error.full_key}: " if isinstance(error, OmegaConfBaseException) else ""
        reason = key + (getattr(error, "strerror", None) or str(error).partition("\n")[0])
        state = "missing" if isinstance(error, FileNotFoundError) else f"damaged ({reason})"
        raise UserError(f"{file}: {state}. Type the command of the run with rerun=true.") from error
    return composed


def _check(composed: Composed) -> None:
    """Raise ValueError or OmegaConf's error if a value is lost or has the wrong type.

    A default in place of a lost value would make another run.
    """
    parts = (composed.config, composed.names, composed.commits)
    if not all(isinstance(part, Mapping) for part in parts):
        raise ValueError("expected names and config")
    groups = [group for group in GROUPS if group not in NOT_OF_A_RUN]
    lost = {key for key in (*groups, *_ALWAYS) if key not in composed.config}
    lost |= {group for group in groups if group not in composed.names}
    if lost:
        raise ValueError(f"{', '.join(sorted(lost))} lost")
    for text in (*composed.names.values(), composed.config["name"], composed.config["outputs"]):
        if not isinstance(text, str):
            raise ValueError(f"name {text!r}")
    for commit in composed.commits.values():
        if not (isinstance(commit, str) and COMMIT.fullmatch(commit)):
            raise ValueError(f"commit {commit!r}")
    if called := plain_yaml.call(vars(composed)):
        raise ValueError(f"{called}: a recorded configuration calls nothing")
    OmegaConf.merge(root(), composed.config)
