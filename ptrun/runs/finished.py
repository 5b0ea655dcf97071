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
from ptrun.config import build as building
from ptrun.errors import UserError
from ptrun.files import from_json
from ptrun.folder import result
from ptrun.folder.digest import AGAIN, PROMPT, damaged
from ptrun.folder.store import bound_to, read_tensors
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.readout.chat import template_digest
from ptrun.start.saved_prompt import Tensors
from ptrun.task.dataset import Task
from ptrun.task.multi import Multi
from ptrun.task.own import Own
from ptrun.types import RunResult

_FACTS = {"name": str, "path": str | None, "commit": str | None, "pooler_seed": int | None}
_FILES = ("train", "dev", "test", "pattern", "hub")  # of `task=csv` and `task=hub`


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
        """Return the selected methods by part, on the device."""
        tuned = self._build_method().tunes_backbone
        self.engine.load(tuned=tuned)
        return self.placed()

    def placed(self) -> dict[str, Method]:
        """Return the selected methods by part, over a backbone that is loaded.

        Raises:
            UserError: a learned tensor is missing, or the chat template is another.
        """
        recorded = self.done.manifest.get("template")
        here = recorded and template_digest(self.backbone, self.readout)
        if recorded != here:
            raise UserError(
                f"{self.done.run_id}: trained with the chat template {recorded}, and that of "
                f"backbone={self.backbone.name} is {here}. Restore the template in "
                f"{self.backbone.folder}, or train again."
            )
        methods = {part: self._build_method() for part in self.parts}
        self.engine.place(list(methods.values()))
        for part, method in methods.items():
            prefix = f"{part}/" if part else ""
            tensors = self.tensors.items()
            exported = {n.removeprefix(prefix): t for n, t in tensors if n.startswith(prefix)}
            method.load_exported(exported)
            method.readout.texts_before = self.done.manifest.get("texts_before", [])
        return methods

    def _build_method(self) -> Method:
        """Return the method with the run's seed, which decides random values that stay frozen."""
        torch.manual_seed(self.done.seed)
        readout = building.build("readout", self.readout)
        method: Method = building.build("method", self.method, self.backbone, self.task, readout)
        return method


def backbone_of(
    done: RunResult, path: str | None = None, families: object = None
) -> PretrainedBackbone:
    """Return the backbone of a run, from its recorded folder or from `path`.

    `families` are those of the run's request: they change no number, so its result lacks them.

    Raises:
        UserError: the folder does not exist, or the result is damaged.
    """
    node, made_with = done.config.get("backbone"), done.manifest.get("backbone")
    told = f"{done.run_id}: damaged (its {result.FINISHED} names no backbone). {AGAIN}"
    if not (isinstance(node, Mapping) and isinstance(made_with, Mapping)):
        raise UserError(told)
    if not all(isinstance(made_with.get(key), kind) for key, kind in _FACTS.items()):
        raise UserError(told)
    node = {key: value for key, value in node.items() if key != "weights"}
    if path := path or made_with.get("path"):
        node["path"] = path
    if families:
        node["families"] = families
    backbone: PretrainedBackbone = building.build("backbone", node)
    backbone.pooler_seed = made_with.get("pooler_seed")
    if backbone.repository:
        backbone.repository.recorded = made_with.get("commit")
    return backbone


def learned(
    folder: Path, done: RunResult, backbone: PretrainedBackbone
) -> tuple[Tensors, dict[str, Any]]:
    """Return the learned tensors, and what the task `recorded`.

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
    with damaged(folder / PROMPT, "its header does not say what its task read"):
        facts = from_json(header["task"])
        _check_recorded(facts)
    return tensors, facts


def _check_recorded(facts: Any) -> None:
    """Raise an error of `DAMAGES` if plain data are not what `Task.recorded` returns."""
    for part in facts["tasks"].values() if "tasks" in facts else [facts]:
        labels, pvps = part["labels"], part.get("pvps", {})
        if not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
            raise ValueError("labels are no list of texts")
        if not isinstance(pvps, dict):
            raise ValueError("patterns are no object")


def recalled(node: Mapping[str, Any], saved: Mapping[str, Any], data_dir: str | None) -> Task:
    """Return the task of a run without its files; `saved` is what it `recorded`."""
    task: Task = building.build("task", _without_files(node, saved), data_dir, None)
    _restore(task, saved)
    return task


def _without_files(node: Mapping[str, Any], saved: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tasks" in saved:
        tasks = node["tasks"]
        inner = {name: _without_files(tasks[name], facts) for name, facts in saved["tasks"].items()}
        return {**node, "tasks": inner}
    if building.target("task", node) is Own:
        return {**node, **dict.fromkeys(_FILES), "labels": saved["labels"]}
    return node


def _restore(task: Task, saved: Mapping[str, Any]) -> None:
    """Give a task what it read from its files when it was trained."""
    if isinstance(task, Multi):
        for name, facts in saved["tasks"].items():
            _restore(task.tasks[name], facts)
        return
    names_them = not task.finds_labels and bool(task.labels)
    if names_them and sorted(task.labels) != sorted(saved["labels"]):
        raise UserError(
            f"{PROMPT} is damaged: its labels are not those of task={task.name}. {AGAIN}"
        )
    task.labels = saved["labels"]
    if isinstance(task, Own):
        task.pvps = saved["pvps"]
