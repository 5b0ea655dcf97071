"""`ptrun rerun RUN`: a run once more, from what it was asked for, and the difference to the old.

    ptrun rerun outputs/runs/RUN_ID                       # or its id, or the beginning of that
    ptrun rerun RUN data_dir=DIR backbone.path=FOLDER     # where things are now
    ptrun rerun RUN hardware=gpu train.lr=1e-2            # or what is to be another

It goes into `outputs/reruns`, each time into a folder that holds no result yet; the old run is
only read. An interrupted one goes on with the same command.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptrun.config.compose import Composed
from ptrun.config.explain import composed
from ptrun.config.overriding import at, gone, parsed, put
from ptrun.config.schema import GROUPS
from ptrun.difference.report import told
from ptrun.errors import RunFailed, UserError
from ptrun.run import request, result
from ptrun.run.find import Run, find
from ptrun.run.launch import launch
from ptrun.run.plan import plan
from ptrun.run.summary import summary

_OWN = ("name", "rerun")
_COMPONENTS = (*GROUPS, "pretraining")
_RUNS = ("start", "task.source.labeller", "pretraining.task.source.labeller")


def main(arguments: Sequence[str]) -> None:
    """Do a run again and print what differs.

    Raises:
        UserError: there is no such run, it does not tell what it was asked for, or the run is
            refused.
        RunFailed: training failed, this time too or only now.
    """
    given = [argument for argument in arguments if "=" not in argument]
    if len(given) != 1:
        raise UserError("rerun takes one run: ptrun rerun RUN [KEY=VALUE ...]; its folder or id.")
    typed = [argument for argument in arguments if "=" in argument]
    outputs = [one.partition("=")[2] for one in typed if one.startswith("outputs=")]
    old = find(given[0], "rerun", Path(*outputs[-1:] or ["outputs"]))
    asked = again(old, typed)
    folder = Path(asked.config["outputs"]) / asked.config["name"] / plan(asked).run_id
    try:
        done = launch(asked)
    except RunFailed:
        _tell(old, folder)
        raise
    _tell(old, folder, summary(done, asked.config))


def again(old: Run, typed: Sequence[str]) -> Composed:
    """Return what a run was asked for, with what is typed now, in a place of its own.

    Raises:
        UserError: it is not kept, a typed key is unknown, or a file it names is gone.
    """
    kept = request.read(old.folder)
    if kept is None:
        raise UserError(_not_kept(old))
    keys = {one: one.partition("=")[0].lstrip("+") for one in typed}
    if own := [key for key in keys.values() if key in _OWN]:
        raise UserError(f"rerun {own[0]}=...: a rerun has a name of its own; leave it out.")
    inside = [one for one, key in keys.items() if key.split(".")[0] in _COMPONENTS and "." in key]
    outside = [one for one in typed if one not in inside]
    base = composed(outside)
    groups = {keys[one] for one in outside} & set(GROUPS)
    config = {
        **base.config,
        **{key: value for key, value in kept.config.items() if key not in groups},
        "data_dir": kept.config.get("data_dir") or base.config["data_dir"],
        "rerun": False,
    }
    names = {**base.names, **{g: name for g, name in kept.names.items() if g not in groups}}
    for one in outside:
        if keys[one] not in GROUPS:
            put(config, keys[one], at(base.config, keys[one]))
    for one in inside:
        put(config, keys[one], parsed(one))
    if "backbone.path" in keys.values():
        names["backbone"] = Path(config["backbone"]["path"]).resolve().name
    _check_places(old, config)
    return _placed(Composed(_with_runs(config, str(kept.config["name"])), names))


def _check_places(old: Run, config: Mapping[str, Any]) -> None:
    """Refuse where a file or folder that was typed is gone.

    Raises:
        UserError: which, and what to type.
    """
    lost = dict(gone(config))
    if lost:
        told = " ".join(f"{key}={value}" for key, value in lost.items())
        keys = " ".join(f"{key}={'@FILE' if v[0] == '@' else 'PATH'}" for key, v in lost.items())
        raise UserError(
            f"rerun {old.folder}: gone from here: {told}\n"
            f"type where it is: ptrun rerun {old.folder} {keys}"
        )


def _with_runs(config: dict[str, Any], name: str) -> dict[str, Any]:
    """Name the runs that a run begins as or is labelled by as it found them: by its own name."""
    for path in _RUNS:
        named = at(config, path)
        if isinstance(named, str) and named.startswith("run:"):
            there = Path(config["outputs"]) / name / named.removeprefix("run:")
            if there.is_dir():
                put(config, path, f"run:{there}")
    return config


def _placed(asked: Composed) -> Composed:
    """Return a run with the first name under which it has no result yet."""
    number = 1
    while True:
        name = result.RERUNS if number == 1 else f"{result.RERUNS}/{number}"
        own = replace(asked, config={**asked.config, "name": name})
        if number == 1:
            run_id = plan(own).run_id
        folder = Path(own.config["outputs"]) / name / run_id
        if result.read(folder) is None:
            return own
        number += 1


def _not_kept(old: Run) -> str:
    names = old.result.names
    typed = [f"{g}={names[g]}" for g in GROUPS if g in names and g != "tracking"]
    return (
        f"rerun {old.folder}: made before runs kept what they were asked for ({request.FILE}).\n"
        f"type its command with a name of its own, then compare: ptrun {' '.join(typed)} "
        f"seed={old.result.seed} ... name={result.RERUNS}\n"
        f"ptrun diff {old.folder} outputs/{result.RERUNS}/{old.result.run_id}"
    )


def _tell(old: Run, folder: Path, *lines: str) -> None:
    """Print what differs, once for all ranks."""
    if os.environ.get("RANK", "0") == "0":
        print(*lines, told(old, find(str(folder), "rerun")), sep="\n")
