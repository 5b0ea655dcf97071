"""A finished run that can be asked: its task, its backbone, and what it learned, part by part.

What the task found in its data (labels, a pattern of the user's own) is in the header of
`prompt.safetensors`, so that neither training files nor their order are needed to answer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.run.saved_prompt import FILE, Tensors
from ptrun.run.store import bound_to, read_tensors
from ptrun.task.base import Task
from ptrun.task.multi import Multi
from ptrun.task.own import Own
from ptrun.task.tagging import Tagging
from ptrun.types import RunResult

_FILES = ("train", "dev", "test", "pattern")  # of `task=csv`


@dataclass(frozen=True)
class Finished:
    """A run to be asked; the backbone's weights are not read before `load`.

    Args:
        folder: of the run.
        done: its result.
        task: which makes questions of rows.
        backbone, engine: what answers.
        method: the method's configuration.
        tensors: what was learned, as `prompt.safetensors` holds it.
    """

    folder: Path
    done: RunResult
    task: Task
    backbone: PretrainedBackbone
    engine: TorchEngine
    method: Mapping[str, Any]
    tensors: Tensors

    @property
    def parts(self) -> list[str]:
        """The names of what was learned apart: relations, or "" alone for the whole."""
        return sorted({name.rpartition("/")[0] for name in self.tensors}) or [""]

    def load(self) -> dict[str, Method]:
        """Return the methods by part, as they were selected, on the device.

        Raises:
            UserError: the weights cannot be read, or a learned tensor is missing.
        """
        methods = {part: self._made() for part in self.parts}
        placed = list(methods.values())
        self.engine.load(tuned=placed[0].tunes_backbone)
        self.engine.place(placed)
        for part, method in methods.items():
            start = f"{part}/" if part else ""
            own = {n.removeprefix(start): t for n, t in self.tensors.items() if n.startswith(start)}
            method.load_exported(own)
        return methods

    def _made(self) -> Method:
        """Return the method as the run made it, whatever of it is drawn and never learned."""
        torch.manual_seed(self.done.seed)
        made: Method = build.build("method", self.method, self.backbone, self.task)
        return made


def backbone_of(done: RunResult, path: str | None = None) -> PretrainedBackbone:
    """Return the backbone of a run, from where it was then or from a folder it is in now.

    Raises:
        UserError: its folder is gone.
    """
    node = {key: value for key, value in done.config["backbone"].items() if key != "weights"}
    path = path or done.manifest["backbone"].get("path")
    backbone: PretrainedBackbone = build.build(
        "backbone", {**node, **({"path": path} if path else {})}
    )
    return backbone


def learned(
    folder: Path, done: RunResult, backbone: PretrainedBackbone
) -> tuple[Tensors, dict[str, Any] | None]:
    """Return what a run learned, and what its task found; None where the run is older than that.

    Raises:
        UserError: the file is damaged, or was made with other weights, whatever their folder.
    """
    bound = {**bound_to(backbone), "name": done.manifest["backbone"]["name"]}
    tensors, header = read_tensors(folder / FILE, bound)
    found = json.loads(header.get("task", "null"))
    return tensors, found or None


def found_by(task: Task) -> dict[str, Any]:
    """Return what a task found in its files that answers need: plain data."""
    if isinstance(task, Multi):
        return {"tasks": {name: found_by(own) for name, own in task.tasks.items()}}
    pattern: dict[str, Any] = {"pvps": dict(task.pvps)} if isinstance(task, Own) else {}
    return {"labels": list(task.labels), **pattern}


def recalled(
    node: Mapping[str, Any], found: Mapping[str, Any] | None, data_dir: str | None
) -> Task:
    """Return the task of a run, with what it found in its files; these need not be there.

    Raises:
        UserError: the run did not keep what it found, and the configuration does not tell it.
    """
    if found is None and _finds(node):
        raise UserError(
            "made before prompts kept the labels of their task; type its command again with "
            "rerun=true."
        )
    task: Task = build.build("task", _without_files(node, found or {}), data_dir, None)
    _tell(task, found or {})
    return task


def _finds(node: Mapping[str, Any]) -> bool:
    """Return whether a task looks into its files for what its labels are."""
    made = build.target("task", node)
    if made is Multi:
        return any(_finds(own) for own in node["tasks"].values())
    return made is Own or (made is Tagging and node.get("entities") is None)


def _without_files(node: Mapping[str, Any], found: Mapping[str, Any]) -> Mapping[str, Any]:
    if "tasks" in found:
        inner = {
            name: _without_files(node["tasks"][name], own) for name, own in found["tasks"].items()
        }
        return {**node, "tasks": inner}
    if build.target("task", node) is Own:
        return {**node, **dict.fromkeys(_FILES), "labels": found["labels"]}
    return node


def _tell(task: Task, found: Mapping[str, Any]) -> None:
    """Give a task what it found once."""
    if isinstance(task, Multi):
        for name, own in found.get("tasks", {}).items():
            _tell(task.tasks[name], own)
        return
    if found.get("labels"):
        task.labels = found["labels"]
    if isinstance(task, Own):
        task.pvps = found["pvps"]
