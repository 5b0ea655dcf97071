"""`start=pretrained`: find or make the prerequisite run, whose prompt a run starts from.

The prerequisite is composed as `ptrun method=RECIPE task=TASK`, with the method, backbone and
hardware of the run that starts from it and the changes in `pretraining.*`. It is an ordinary run.
Its id covers everything that shapes its prompt, so runs with another task, seed or learning rate
share it. PPT's choice of pre-training task: Gu et al. 2022 §3.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.config.components import TARGET
from ptrun.config.compose import Composed, compose_run
from ptrun.config.paths import options
from ptrun.errors import RunFailed, UserError, unknown
from ptrun.folder import result
from ptrun.task.dataset import Task

_SHARED = ("backbone", "hardware", "protocol", "tracking")
_NAME = "pretraining"
_OWN_KEY = re.compile(r"(?<![\w.])((?:method|readout|task|train)\.\w)")


def task_for(task: Task, reading: Mapping[str, Any], typed: str) -> str:
    """Return the pre-training task of a prompt: the given one, or PPT's for the kind of task."""
    tasks = options("task")
    if typed and typed not in tasks:
        raise UserError(unknown(f"start=pretrained:{typed}", typed, tasks))
    if typed:
        return typed
    if reading.get("pattern") == "ppt_unified":
        name = "ppt_unified"
    elif task.answer == "label" and not task.fills_gap:
        name = "ppt_nsp" if len(task.fields) == 2 else "ppt_cls"
    elif task.answer == "option":
        name = "ppt_nss"
    else:
        raise UserError(
            f"start=pretrained: PPT has no pre-training task for {task.kind}, the kind of "
            f"task={task.name}. Name one, as in start=pretrained:ppt_nsp."
        )
    if name not in tasks:
        raise UserError(
            f"task={task.name}: PPT pre-trains for it on {name}, which ptrun does not have. "
            "Type method=ppt_unified or start=pretrained:TASK."
        )
    return name


def composed_for(composed: Composed, task: str) -> Composed:
    """Return the configuration of the prerequisite run: that of the run, with its changes."""
    config, changes = composed.config, composed.config["pretraining"]
    if is_made(composed.task):
        raise UserError(
            f"task={config['task']['name']} is itself a pre-training task. Type "
            "method=ppt_pretraining, or start=identical."
        )
    read = {k: v for k, v in config["readout"].items() if k != "pattern"}  # is for the other task
    changed = {key: config[key] for key in ("outputs", "data_dir", "data_seed")}
    changed |= {"start": changes["start"]} if changes["start"] else {}
    changed |= {
        "name": _NAME,
        "seed": changes["seed"],
        "method": {**config["method"], **changes["method"]},
        "readout": {**read, **changes["readout"]},
        "task": changes["task"],
        "train": changes["train"],
    }
    try:
        base = compose_run(
            [f"method={changes['recipe'] or composed.names['method']}", f"task={task}"],
            given={group: config[group] for group in _SHARED},
            changed=changed,
        )
    except UserError as error:
        raise UserError(f"pretraining: {error}") from error
    if str(base.config["start"]).startswith("pretrained"):
        raise UserError(
            "A pre-training cannot use start=pretrained. Type pretraining.start=random."
        )
    base.config["sweep"]["wait"] = True  # another command may be doing it
    if is_made(base.task):  # the corpus alone decides its split
        base.config["data_seed"] = 1
        corpus = base.task["source"].get("corpus")
        if corpus in base.task["pvps"]:  # a pattern of its own, as the pocket corpus has
            base.config["readout"]["pattern"] = base.config["readout"].get("pattern") or corpus
    names = {group: composed.names[group] for group in (*_SHARED, "readout")}
    return Composed(base.config, base.names | names)


def typed_keys(message: object) -> str:
    """Return a message about a prerequisite run with the keys that the user types."""
    return _OWN_KEY.sub(r"pretraining.\1", str(message))


def unmet(folder: Path, error: Exception) -> UserError | RunFailed:
    """Return the error of a run whose prompt another run should have learned first."""
    if isinstance(error, RunFailed):
        return RunFailed(
            f"the prompt was not pre-trained: {str(error).splitlines()[0]}\nGive it another recipe "
            f"(pretraining.train.lr=...), or delete {folder} to try again."
        )
    return UserError(f"the prompt is not pre-trained: {typed_keys(error)}")


def is_made(task: Mapping[str, Any]) -> bool:
    """Return whether a class makes the examples of a task, as from a corpus without labels."""
    return TARGET in (task.get("source") or {})


def finished_folder(folder: Path, outputs: Path) -> Path:
    """Return the folder where a run finished, under any name; else the folder it will have."""
    if result.read(folder) is not None:
        return folder
    others = [f for depth in ("*", "*/*") for f in sorted(outputs.glob(f"{depth}/{folder.name}"))]
    return next((other for other in others if (other / result.FINISHED).is_file()), folder)
