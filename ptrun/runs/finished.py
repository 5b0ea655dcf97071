"""A finished run that predicts: its task, its backbone, and its learned tensors, part by part.

The header of `prompt.safetensors` holds what the task read from its data: labels and the user's own
pattern. So a prediction needs no training files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.errors import UserError
from ptrun.files import from_json
from ptrun.folder import result
from ptrun.folder.header import PROMPT
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.runs.saved_prompt import Tensors
from ptrun.runs.store import bound_to, read_tensors
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.task.own import Own
from ptrun.task.tagging import Tagging
from ptrun.types import RunResult

_AGAIN = "Type the command of its run again with rerun=true."
_FILES = ("train", "dev", "test", "pattern")  # of `task=csv`


@dataclass(frozen=True)
class Finished:
    """A finished run; `load` reads the weights of its backbone.

    Args:
        folder: the run folder.
        done: its result.
        task: makes examples of rows.
        backbone, engine: run the model.
        method, readout: the configuration of the method and of its read-out.
        tensors: what was learned, as in `prompt.safetensors`.
    """

    folder: Path
    done: RunResult
    task: Task
    backbone: PretrainedBackbone
    engine: TorchEngine
    method: Mapping[str, Any]
    readout: Mapping[str, Any]
    tensors: Tensors

    @property
    def parts(self) -> list[str]:
        """The names of the parts, such as relations; `[""]` if there is one part."""
        return sorted({name.rpartition("/")[0] for name in self.tensors}) or [""]

    def load(self) -> dict[str, Method]:
        """Return the selected methods by part, on the device.

        Raises:
            UserError: the weights cannot be read, or a learned tensor is missing.
        """
        methods = {part: self._build_method() for part in self.parts}
        placed = list(methods.values())
        self.engine.load(tuned=placed[0].tunes_backbone)
        self.engine.place(placed)
        for part, method in methods.items():
            prefix = f"{part}/" if part else ""
            tensors = self.tensors.items()
            own = {n.removeprefix(prefix): t for n, t in tensors if n.startswith(prefix)}
            method.load_exported(own)
        return methods

    def _build_method(self) -> Method:
        """Return the method with the run's seed, which decides random values that stay frozen."""
        torch.manual_seed(self.done.seed)
        method: Method = build.build("method", self.method, *self._runtime())
        return method

    def _runtime(self) -> tuple[Any, ...]:
        return self.backbone, self.task, build.build("readout", self.readout)


def backbone_of(done: RunResult, path: str | None = None) -> PretrainedBackbone:
    """Return the backbone of a run, from its recorded folder or from `path`.

    Raises:
        UserError: the folder does not exist, or the result is damaged.
    """
    node, made_with = done.config.get("backbone"), done.manifest.get("backbone")
    if not (isinstance(node, Mapping) and isinstance(made_with, Mapping) and _names(made_with)):
        raise UserError(
            f"{done.run_id}: damaged (its {result.FINISHED} names no backbone). {_AGAIN}"
        )
    node = {key: value for key, value in node.items() if key != "weights"}
    if path := path or made_with.get("path"):
        node["path"] = path
    backbone: PretrainedBackbone = build.build("backbone", node)
    backbone.pooler_seed = made_with.get("pooler_seed")
    if backbone.repository:
        backbone.repository.recorded = made_with.get("commit")
    return backbone


def _names(made_with: Mapping[str, Any]) -> bool:
    """Return whether the facts of a backbone have their types."""
    optional = {"path": str, "commit": str, "pooler_seed": int}
    return isinstance(made_with.get("name"), str) and all(
        isinstance(made_with.get(key), kind | None) for key, kind in optional.items()
    )


def learned(
    folder: Path, done: RunResult, backbone: PretrainedBackbone
) -> tuple[Tensors, dict[str, Any] | None]:
    """Return the learned tensors and `found_by` of the task; None if an older run lacks it.

    Raises:
        UserError: the file is missing, damaged, or was made with other weights.
    """
    if not (folder / PROMPT).is_file():
        raise UserError(
            f"{folder}: the run kept no {PROMPT}, as runs of sweeps that tune their backbone. Type "
            "its command again with keep=weights rerun=true."
        )
    bound = {**bound_to(backbone), "name": done.manifest["backbone"]["name"]}
    tensors, header = read_tensors(folder / PROMPT, bound, backbone.folder)
    try:
        found = from_json(header.get("task", "null")) or None
        if found is not None:
            _check_found(found)
    except ValueError as error:
        raise UserError(f"{folder / PROMPT}: damaged (its task: {error}). {_AGAIN}") from error
    return tensors, found


def _check_found(found: Any) -> None:
    """Raise ValueError if plain data are not what `found_by` writes."""
    if not isinstance(found, dict):
        raise ValueError("no object")
    if "tasks" in found:
        for own in found["tasks"].values() if isinstance(found["tasks"], dict) else [None]:
            _check_found(own)
        return
    labels, pvps = found.get("labels"), found.get("pvps", {})
    if not (isinstance(labels, list) and all(isinstance(one, str) for one in labels)):
        raise ValueError("labels are no list of texts")
    if not isinstance(pvps, dict):
        raise ValueError("patterns are no object")


def found_by(task: Task) -> dict[str, Any]:
    """Return what a task read from its files and predictions need, as plain data."""
    if isinstance(task, Multi):
        return {"tasks": {name: found_by(own) for name, own in task.tasks.items()}}
    pattern: dict[str, Any] = {"pvps": dict(task.pvps)} if isinstance(task, Own) else {}
    return {"labels": list(task.labels), **pattern}


def recalled(
    node: Mapping[str, Any], saved: Mapping[str, Any] | None, data_dir: str | None
) -> Task:
    """Return the task of a run without its files; `saved` is the result of `found_by`.

    Raises:
        UserError: `saved` is None, and the configuration does not name the labels.
    """
    if saved is None and _reads_labels(node):
        raise UserError(
            "this run was made before prompt files held the labels of the task. Type its command "
            "again with rerun=true."
        )
    task: Task = build.build("task", _without_files(node, saved or {}), data_dir, None)
    _restore(task, saved or {})
    return task


def _reads_labels(node: Mapping[str, Any]) -> bool:
    """Return whether a task reads its labels from its files."""
    target = build.target("task", node)
    if target is Multi:
        return any(_reads_labels(own) for own in node["tasks"].values())
    return target is Own or (target is Tagging and node.get("entities") is None)


def _without_files(node: Mapping[str, Any], saved: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tasks" in saved:
        tasks = node["tasks"]
        inner = {name: _without_files(tasks[name], own) for name, own in saved["tasks"].items()}
        return {**node, "tasks": inner}
    if build.target("task", node) is Own:
        return {**node, **dict.fromkeys(_FILES), "labels": saved["labels"]}
    return node


def _restore(task: Task, saved: Mapping[str, Any]) -> None:
    """Give a task what it read from its files when it was trained."""
    if isinstance(task, Multi):
        for name, own in saved.get("tasks", {}).items():
            _restore(task.tasks[name], own)
        return
    if saved.get("labels"):
        if (
            not isinstance(task, Own)
            and task.labels
            and sorted(task.labels) != sorted(saved["labels"])
        ):
            raise UserError(
                f"{PROMPT} is damaged: its labels are not those of task={task.name}. {_AGAIN}"
            )
        task.labels = saved["labels"]
    if isinstance(task, Own):
        task.pvps = saved["pvps"]
