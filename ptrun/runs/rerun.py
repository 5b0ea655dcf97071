"""The configuration of `ptrun rerun`: `run.yaml` of the old run, with what is typed over it.

The rerun goes into `outputs/reruns`, into a folder that has no result yet. The old run is only
read.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ptrun.config.compose import Composed, compose_run
from ptrun.config.overriding import at, gone, parsed, put
from ptrun.config.schema import GROUPS
from ptrun.errors import UserError
from ptrun.folder import request, result
from ptrun.folder.find import RunFolder
from ptrun.runs.plan import Plan, plan

_FIXED = ("name", "rerun")
_COMPONENTS = (*GROUPS, "pretraining")
_RUNS = ("start", "continue", "task.source.labeller", "pretraining.task.source.labeller")


def again(old: RunFolder, typed: Sequence[str], command: str = "rerun") -> Composed:
    """Return the configuration of a run, changed by overrides, under a name without a result.

    Errors name the `command`.

    Raises:
        UserError: the configuration is not recorded, a typed key is unknown, or a file is missing.
    """
    recorded = request.read(old.folder)
    # 1. Divide what is typed: keys inside of a component, and options and other keys
    keys = {override: override.partition("=")[0].lstrip("+") for override in typed}
    if fixed := [key for key in keys.values() if key in _FIXED]:
        raise UserError(f"rerun {fixed[0]}=...: a rerun sets {fixed[0]} itself. Leave it out.")
    inside = [
        override
        for override, key in keys.items()
        if key.split(".")[0] in _COMPONENTS and "." in key
    ]
    outside = [override for override in typed if override not in inside]
    # 2. Take the recorded values where nothing else is typed
    base = compose_run(outside)
    groups = {keys[override] for override in outside} & set(GROUPS)
    # a folder from somebody else does not decide that files are written outside of this one
    outputs, here = recorded.outputs.resolve(), Path.cwd()
    in_here = outputs.is_relative_to(here) and old.folder.resolve().is_relative_to(outputs)
    config = {
        **base.config,
        **{key: value for key, value in recorded.config.items() if key not in groups},
        "data_dir": recorded.config.get("data_dir") or base.config["data_dir"],
        "outputs": str(recorded.outputs if in_here else base.outputs),
        "rerun": False,
    }
    names = {**base.names, **{g: name for g, name in recorded.names.items() if g not in groups}}
    for override in outside:
        if keys[override] not in GROUPS:
            put(config, keys[override], at(base.config, keys[override]))
    for override in inside:
        put(config, keys[override], parsed(override))
    if "backbone.path" in keys.values():
        names["backbone"] = Path(config["backbone"]["path"]).resolve().name
    # 3. Find the files and the other runs here: ids are looked up below the run's own name
    if lost := dict(gone(config)):
        values = " ".join(f"{key}={value}" for key, value in lost.items())
        needed = " ".join(f"{key}={'@FILE' if v[0] == '@' else 'PATH'}" for key, v in lost.items())
        raise UserError(
            f"{command} {old.folder}: these files do not exist: {values}\n"
            f"Type where they are: ptrun {command} {old.folder} {needed}"
        )
    for key in _RUNS:
        value = at(config, key)
        if isinstance(value, str) and value.startswith("run:"):
            runs = Path(config["outputs"], str(recorded.config["name"]))
            folder = runs / value.removeprefix("run:")
            if folder.is_dir():
                put(config, key, f"run:{folder}")
    # 4. Take the first name under which the run has no result yet; its id has no name
    run = Composed({**config, "name": result.RERUNS}, names, recorded.commits, [*keys.values()])
    run_id, number = plan(run).run_id, 1
    while result.read(run.outputs / run.name / run_id) is not None:
        number += 1
        run = replace(run, config={**config, "name": f"{result.RERUNS}/{number}"})
    return run


def plan_again(old: RunFolder, typed: Sequence[str], command: str) -> Plan:
    """Return the plan of a run, changed as `again`; data that have changed since are refused."""
    planned = plan(again(old, typed, command))
    if planned.content["data"] != old.result.config["data"]:
        raise UserError("the data have changed since")
    return planned
