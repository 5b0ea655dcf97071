"""The configuration of a run that is done again: `run.yaml`, with what is typed over it.

It goes into `outputs/reruns`, each time into a folder that holds no result yet. The old run is only
read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptrun.config.compose import Composed
from ptrun.config.explain import composed
from ptrun.config.overriding import at, gone, parsed, put
from ptrun.config.schema import GROUPS
from ptrun.errors import UserError
from ptrun.run import request, result
from ptrun.run.find import Run
from ptrun.run.plan import plan

_OWN = ("name", "rerun")
_COMPONENTS = (*GROUPS, "pretraining")
_RUNS = ("start", "task.source.labeller", "pretraining.task.source.labeller")


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
        "outputs": _outputs(old, kept, base),
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


def _outputs(old: Run, kept: Composed, base: Composed) -> str:
    """Return the folder of the rerun: that of the old run, if it is still in there.

    A run folder from somebody else does not choose where we write.
    """
    inside = old.folder.resolve().is_relative_to(kept.outputs.resolve())
    return str(kept.outputs if inside else base.outputs)


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
