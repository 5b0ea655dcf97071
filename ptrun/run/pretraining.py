"""`start=pretrained`: the prompt of a run that learns on another task first, found or made.

That run is composed as if it were typed: `ptrun method=RECIPE task=TASK`, with the method, backbone
and hardware of the run that begins as it, and what `pretraining.*` changes. So it is an ordinary
run, whose id tells all that shapes its prompt; runs that differ in what they tune, in seed or
learning rate, share it. PPT's mapping from tasks to pre-training tasks: Gu et al. 2022 §3.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from ptrun.config.compose import Composed, compose_run
from ptrun.config.explain import explain
from ptrun.config.paths import options
from ptrun.config.suggest import unknown
from ptrun.errors import UserError
from ptrun.run import result
from ptrun.task.base import Task

_LOG = logging.getLogger(__name__)
_SHARED = ("backbone", "hardware", "protocol", "tracking")
_NAME = "pretraining"
_OWN = re.compile(r"(?<![\w.])((?:method|task|train)\.\w)")


def task_for(task: Task, method: Mapping[str, Any], given: str) -> str:
    """Return what a prompt for a task is pre-trained on: the task given, or PPT's for its kind.

    Raises:
        UserError: there is no such task, or PPT has none for the kind.
    """
    known = options("task")
    if given and given not in known:
        raise UserError(unknown(f"start=pretrained:{given}", given, known))
    name = given or _of_ppt(task, method)
    if name not in known:
        raise UserError(
            f"task={task.name}: PPT pre-trains for it on {name}, which is not there; "
            "type method=ppt_unified or start=pretrained:TASK."
        )
    return name


def _of_ppt(task: Task, method: Mapping[str, Any]) -> str:
    if method.get("pattern") == "ppt_unified":
        return "ppt_unified"
    if task.kind == "classification":
        return "ppt_nsp" if len(task.fields) == 2 else "ppt_cls"
    if task.kind == "choice":
        return "ppt_nss"
    raise UserError(
        f"start=pretrained: PPT has nothing for {task.kind}, the kind of task={task.name}; name a "
        "task to learn on first, as in start=pretrained:ppt_nsp."
    )


def composed_for(own: Composed, task: str) -> Composed:
    """Return the run whose prompt a run begins as.

    Raises:
        UserError: what `pretraining` says is unknown or misfits, or the run would begin as itself.
    """
    config, asked = own.config, own.config["pretraining"]
    if of_corpus(config):
        raise UserError(
            f"task={config['task']['name']} is what prompts are pre-trained on; type "
            "method=ppt_pretraining, or start=identical."
        )
    try:
        base = compose_run(
            [f"method={asked['recipe'] or own.names['method']}", f"task={task}"],
            given={group: config[group] for group in _SHARED},
            changed=_changes(config),
        )
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(f"pretraining: {explain(error, [])}") from error
    if str(base.config["start"]).startswith("pretrained"):
        raise UserError("a pre-training cannot begin pre-trained; type pretraining.start=random.")
    if of_corpus(base.config):  # the corpus alone decides its split
        base.config["data_seed"] = 1
        _name_pattern(base.config)
    return Composed(base.config, {**base.names, **{group: own.names[group] for group in _SHARED}})


def typed_keys(told: object) -> str:
    """Return what is told of a pre-training, its keys as they are typed in the run."""
    return _OWN.sub(r"pretraining.\1", str(told))


def _changes(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the pre-training has in common with the run, and what it is told of its own."""
    asked = config["pretraining"]
    method = config["method"]
    kept = {key: config[key] for key in ("outputs", "data_dir", "data_seed")}
    told = {"start": asked["start"]} if asked["start"] else {}
    unnamed = {"pattern": None} if "pattern" in method else {}  # it is another task's
    return {
        **kept,
        **told,
        "name": _NAME,
        "seed": asked["seed"],
        "method": {**method, **unnamed, **asked["method"]},
        "task": asked["task"],
        "train": asked["train"],
    }


def _name_pattern(config: Mapping[str, Any]) -> None:
    """Read a corpus by the pattern of its name, where there is one: the pocket world's words."""
    task, method = config["task"], config["method"]
    corpus = task["source"]["corpus"]
    if method.get("readout") == "verbalizer" and corpus in task["pvps"]:
        method["pattern"] = method["pattern"] or corpus


def of_corpus(config: Mapping[str, Any]) -> bool:
    """Return whether a run's examples are made of a corpus without labels."""
    return "corpus" in (config["task"].get("source") or {})


def finished_folder(folder: Path, outputs: Path) -> Path:
    """Return where a run was finished, under any name; else the folder it will have."""
    if result.read(folder) is not None:
        return folder
    others = [f for depth in ("*", "*/*") for f in sorted(outputs.glob(f"{depth}/{folder.name}"))]
    return next((other for other in others if (other / result.FINISHED).is_file()), folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Let one process at a time do a run. The lock is released when its process ends."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        _LOG.info("waiting for another process that pre-trains this prompt: %s", folder)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
