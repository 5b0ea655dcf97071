"""A finished run that predicts: its task, its backbone, and its learned tensors, part by part.

The header of `prompt.safetensors` holds what the task read from its data: labels and the user's own
pattern. So a prediction needs no training files.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build as building
from ptrun.config.build import Component, build, target
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.files import below, from_json
from ptrun.folder import result
from ptrun.folder.digest import AGAIN, PROMPT, damaged
from ptrun.folder.store import bound_to, read_tensors
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.readout.chat import template_digest
from ptrun.start import saved_prompt
from ptrun.start.saved_prompt import Tensors
from ptrun.task.classification import Classification
from ptrun.task.dataset import Task
from ptrun.task.labelled import CorpusLine, Labelled
from ptrun.task.multi import Multi
from ptrun.task.own import Own
from ptrun.task.ppt import read
from ptrun.task.source import Source
from ptrun.types import Example, RunResult

_LOG = logging.getLogger(__name__)

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
        return methods

    def _build_method(self) -> Method:
        """Return the method with the run's seed, which decides random values that stay frozen."""
        torch.manual_seed(self.done.seed)
        readout = building.build("readout", self.readout)
        method: Method = building.build("method", self.method, self.backbone, self.task, readout)
        return method


def backbone_of(done: RunResult, path: str | None = None) -> PretrainedBackbone:
    """Return the backbone of a run, from its recorded folder or from `path`.

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
    backbone: PretrainedBackbone = building.build("backbone", node)
    backbone.pooler_seed = made_with.get("pooler_seed")
    if backbone.repository:
        backbone.repository.recorded = made_with.get("commit")
    return backbone


def learned(
    folder: Path, done: RunResult, backbone: PretrainedBackbone
) -> tuple[Tensors, dict[str, Any]]:
    """Return the learned tensors and `found_by` of the task.

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
        _check_found(facts)
    return tensors, facts


def _check_found(facts: Any) -> None:
    """Raise an error of `DAMAGES` if plain data are not what `found_by` writes."""
    for part in facts["tasks"].values() if "tasks" in facts else [facts]:
        labels, pvps = part["labels"], part.get("pvps", {})
        if not (isinstance(labels, list) and all(isinstance(label, str) for label in labels)):
            raise ValueError("labels are no list of texts")
        if not isinstance(pvps, dict):
            raise ValueError("patterns are no object")


def found_by(task: Task) -> dict[str, Any]:
    """Return what a task read from its files and predictions need, as plain data."""
    if isinstance(task, Multi):
        return {"tasks": {name: found_by(member) for name, member in task.tasks.items()}}
    pattern: dict[str, Any] = {"pvps": dict(task.pvps)} if isinstance(task, Own) else {}
    return {"labels": list(task.labels), **pattern}


def recalled(node: Mapping[str, Any], saved: Mapping[str, Any], data_dir: str | None) -> Task:
    """Return the task of a run without its files; `saved` is the result of `found_by`."""
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
    names_them = bool(task.labels) and not isinstance(task, Own)
    if names_them and sorted(task.labels) != sorted(saved["labels"]):
        raise UserError(
            f"{PROMPT} is damaged: its labels are not those of task={task.name}. {AGAIN}"
        )
    task.labels = saved["labels"]
    if isinstance(task, Own):
        task.pvps = saved["pvps"]


# Label the lines of a corpus with a classifier that another run trained (PPT, CLS).
#
#     ptrun task=yelp_full method=fine_tuning backbone=roberta_base
#     ptrun task=ppt_cls task.source.labeller=run:RUN_ID task.source.corpus=DIR
#
# The first trains a classifier; the second labels lines with it, then trains.
#
# Labels are kept in shards below `<outputs>/.labels`, in a folder named by a hash of corpus,
# classifier and settings. So nothing is labelled twice, and a killed run resumes after the last
# complete shard.

_MIN_TOKENS, _MAX_TOKENS = 5, 256  # a line has more than the first and is truncated to the second
_REPORT_EVERY = 10.0  # seconds
_KEY = "task.source.labeller"


class Labeller(Finished):
    """A finished run of a classification task with one text field."""

    @classmethod
    def of(cls, lines: Labelled, request: Composed, hardware: Component) -> "Labeller":
        """Return the run that labels lines, with its task and backbone, on the `hardware`.

        Raises:
            UserError: there is no such run, or its task does not label one text.
        """
        kind, _, run = lines.labeller.partition(":")
        if kind != "run":
            raise UserError(
                f"{_KEY}={lines.labeller}: expected a finished run. Type {_KEY}=run:RUN_ID."
            )
        folder = saved_prompt.find(run, request.outputs, request.name, key=_KEY).resolve()
        done = result.read(folder)
        if done is None or done.status != "finished":
            raise UserError(f"{_KEY}=run:{run}: {folder} is not finished. Type its command again.")
        task, backbone = _task(done), backbone_of(done)
        tensors, _ = learned(folder, done, backbone)
        components = done.config["method"], done.config["readout"], tensors
        return cls(folder, done, task, backbone, hardware.build(backbone), *components)

    def fingerprint(self) -> str:
        """Return what identifies the labels: learned tensors, configuration, backbone, precision.

        The configuration counts because `manual_prompt` may learn nothing.
        """
        digest = saved_prompt.digest({"": self.tensors})
        computed = f"{self.engine.precision} {self.engine.quantization}".removesuffix(" none")
        return f"{digest} {self.done.group} {self.backbone.weights} {computed}"

    def words(self) -> dict[str, list[str]]:
        """Return the words of each label: PPT's, or those of the first pattern that has any.

        Raises:
            UserError: no pattern has words.
        """
        pvps = self.task.pvps
        ordered = [pvps[name] for name in sorted(pvps, key=lambda name: name != "ppt_pt")]
        words = next((pvp["words"] for pvp in ordered if "words" in pvp), None)
        if words is None:
            raise UserError(
                f"{_KEY}=run:{self.folder}: its task {self.task.name} has no label words. Give "
                "them as task.pvps.ppt_pt.words={LABEL: [WORD], ...}."
            )
        return {label: list(words[label]) for label in self.task.labels}


def lines_of(composed: Composed, hardware: Component) -> tuple[Composed, Labelled | None]:
    """Return the configuration with the labels of the labeller, and the lines to label, if any."""
    task = composed.config["task"]
    lines = _lines(task, composed.config["data_dir"])
    if lines is None or not lines.labeller.removeprefix("run:"):
        return composed, lines  # `label` refuses lines without a labeller; a plan needs none
    labeller = Labeller.of(lines, composed, hardware)
    labels = list(labeller.task.labels)
    lines = replace(
        lines,
        labeller=f"run:{labeller.folder}",
        fingerprint=labeller.fingerprint(),
        thresholds=_thresholds(lines.thresholds, labels),
    )
    lines = replace(lines, shards=str(below(composed.outputs, ".labels", lines.folder_name())))
    pvps = {}
    for name, pvp in task["pvps"].items():  # its own words if they are for these labels
        words = pvp.get("words", {})
        pvps[name] = {**pvp, "words": words if set(words) == set(labels) else labeller.words()}
    names = {label: label for label in labels}
    task = {**task, "source": vars(lines), "labels": names, "pvps": pvps}
    return replace(composed, config={**composed.config, "task": task}), lines


def label(lines: Labelled, request: Composed, hardware: Component) -> None:
    """Label the lines that are in no shard yet."""
    if lines.full():
        return
    labeller = Labeller.of(lines, request, hardware)
    method = labeller.load()[""]
    _LOG.info("labelling %s with %s", lines.corpus, labeller.folder)
    reported = time.monotonic()
    for number, block in lines.waiting():
        lines.kept.write(number, len(block), _labelled(lines, block, method, labeller.engine))
        if time.monotonic() - reported > _REPORT_EVERY:
            reported = time.monotonic()
            _LOG.info("%s", lines.progress())
        if lines.full():
            return


def _lines(task: Mapping[str, Any], data_dir: str | None) -> Labelled | None:
    """Return the lines of a task; None if it has files instead, or no labeller."""
    origin = task.get("source") or {}
    if "labeller" not in origin or Source(task["name"], origin, data_dir).exists("train"):
        return None
    lines = read(origin)
    assert isinstance(lines, Labelled)
    return lines


def _task(done: RunResult) -> Task:
    node = dict(done.config["task"])
    if target("task", node) is Classification:
        node.setdefault("source", {"pocket": node["name"]})  # missing if made of a corpus; unused
        task: Task = build("task", node, None, None)
        if len(task.fields) == 1:
            task.max_tokens = min(task.max_tokens or _MAX_TOKENS, _MAX_TOKENS)
            return task
    raise UserError(
        f"{_KEY}=run:{done.run_id}: its task, {done.names['task']}, does not label one text. Give "
        "a run of a task like sst5."
    )


def _thresholds(thresholds: Mapping[str, float], labels: list[str]) -> dict[str, float]:
    """Return the threshold of each label."""
    allowed = ("first", "last", "other", *labels)
    for key in thresholds:
        if key not in allowed:
            raise UserError(
                f"task.source.thresholds.{key}: the labeller has no such label. Give one of "
                f"{', '.join(allowed)}."
            )
    ends = {labels[0]: "first", labels[-1]: "last"}
    other = thresholds.get("other", 0.0)
    return {
        label: thresholds.get(label, thresholds.get(ends.get(label, ""), other)) for label in labels
    }


def _labelled(
    lines: Labelled, block: list[CorpusLine], method: Method, engine: TorchEngine
) -> list[dict[str, Any]]:
    """Return the rows of a shard: lines that are long enough and above their label's threshold."""
    tokenizer, (field,) = method.backbone.tokenizer(), method.task.fields
    texts = [line.text for line in block]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
    long = [line for line, tokens in zip(block, ids, strict=True) if len(tokens) > _MIN_TOKENS]
    any_label = method.task.labels[0]
    features = method.encode([Example(line.id, {field: line.text}, any_label) for line in long])
    (predictions,) = engine.predict([method], [features])
    rows = []
    for line, prediction in zip(long, predictions, strict=True):
        name, probability = prediction.value, prediction.probability
        if probability is None:
            raise UserError(
                f"{_KEY}={lines.labeller}: its read-out gives no probabilities. Give a run with "
                "readout=head or verbalizer."
            )
        if name in lines.thresholds and probability > lines.thresholds[name]:
            row = {"id": line.id, "split": line.split, "text": line.text, "label": name}
            rows.append({**row, "probability": round(probability, 4)})
    return rows
