"""Lines of a corpus labelled by a classifier that another run trained (PPT, CLS).

    ptrun task=yelp_full method=fine_tuning backbone=roberta_base               trains one
    ptrun task=ppt_cls task.source.labeller=run:RUN_ID task.source.corpus=DIR   asks it, and learns

What it says is kept below `<outputs>/.labels`, shard by shard, in a folder whose name is a hash of
corpus, classifier and settings: nothing is labelled twice, and a killed run goes on behind the last
whole shard.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptrun.config.build import Component, build, target
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method
from ptrun.run import result, saved_prompt
from ptrun.run.finished import Finished, backbone_of, learned
from ptrun.task.base import Task
from ptrun.task.classification import Classification
from ptrun.task.ppt.construction import read
from ptrun.task.ppt.labelled import Labelled, Line
from ptrun.task.source import Source
from ptrun.types import Example, RunResult

_LOG = logging.getLogger(__name__)
_FEWEST, _LONGEST = 5, 256  # tokens: more than, and cut to
_REPORT_EVERY = 10.0  # seconds
_KEY = "task.source.labeller"


class Labeller(Finished):
    """A finished run of a classification task with one text."""

    def fingerprint(self) -> str:
        """Return what decides the answers: what was learned, over which backbone, how precise.

        And the run's configuration: `manual_prompt` learns nothing, its pattern alone answers.
        """
        told = saved_prompt.digest({"": self.tensors})
        return f"{told} {self.done.group} {self.backbone.weights} {self.engine.precision}"

    def words(self) -> dict[str, list[str]]:
        """Return a word for each label: PPT's, or those of the first pattern that has any.

        Raises:
            UserError: there are none.
        """
        pvps = self.task.pvps
        ordered = sorted(pvps, key=lambda name: name != "ppt_pt")
        found = next((pvps[name]["words"] for name in ordered if "words" in pvps[name]), None)
        if found is None:
            raise UserError(
                f"{_KEY}=run:{self.folder}: its task {self.task.name} has no label words; write "
                "them into task.pvps.ppt_pt.words={LABEL: [WORD], ...}."
            )
        return {label: list(found[label]) for label in self.task.labels}


@dataclass(frozen=True)
class Labelling:
    """Lines to be labelled, and the run that labels them.

    Args:
        lines: the corpus and what is wanted of it.
        outputs, name: where runs are.
        hardware: the engine that runs the labeller.
    """

    lines: Labelled
    outputs: Path
    name: str
    hardware: Component

    def labeller(self) -> Labeller:
        """Return the labeller with its task and backbone.

        Raises:
            UserError: there is no such run, or its task does not label one text.
        """
        kind, _, run = self.lines.labeller.partition(":")
        if kind != "run":
            typed = f"{_KEY}={self.lines.labeller}"
            raise UserError(f"{typed}: type {_KEY}=run:RUN_ID, a finished run.")
        folder = saved_prompt.find(run, self.outputs, self.name, key=_KEY).resolve()
        done = result.read(folder)
        if done is None or done.status != "finished":
            raise UserError(f"{_KEY}=run:{run}: {folder} is no finished run; run it to its end.")
        task, backbone = _task(done), backbone_of(done)
        tensors, _ = learned(folder, done, backbone)
        engine = self.hardware.build(backbone)
        return Labeller(folder, done, task, backbone, engine, done.config["method"], tensors)


def labelling_of(composed: Composed, hardware: Component) -> tuple[Composed, Labelling | None]:
    """Return the labelling that a task asks for, and a configuration with the labeller's labels.

    Raises:
        UserError: the labeller is not there, or cannot label lines.
    """
    task = composed.config["task"]
    lines = _lines(task, composed.config["data_dir"])
    if lines is None:
        return composed, None
    labelling = Labelling(lines, composed.outputs, composed.name, hardware)
    if not lines.labeller.removeprefix("run:"):  # `label` refuses it; a plan needs none
        return composed, labelling
    labeller = labelling.labeller()
    labels = list(labeller.task.labels)
    lines = replace(
        lines,
        labeller=f"run:{labeller.folder}",
        fingerprint=labeller.fingerprint(),
        thresholds=_thresholds(lines.thresholds, labels),
    )
    lines = replace(lines, shards=str(composed.outputs / ".labels" / lines.folder_name()))
    pvps = {name: _worded(pvp, labels, labeller) for name, pvp in task["pvps"].items()}
    task = {**task, "source": vars(lines), "labels": {own: own for own in labels}, "pvps": pvps}
    settled = replace(composed, config={**composed.config, "task": task})
    return settled, replace(labelling, lines=lines)


def label(labelling: Labelling) -> None:
    """Label the lines that no shard has yet."""
    lines = labelling.lines
    if lines.full():
        return
    labeller = labelling.labeller()
    method = labeller.load()[""]
    _LOG.info("labelling %s with %s", lines.corpus, labeller.folder)
    reported = time.monotonic()
    for number, some in lines.waiting():
        lines.kept.write(number, len(some), _sure(lines, some, method, labeller.engine))
        if time.monotonic() - reported > _REPORT_EVERY:
            reported = time.monotonic()
            _LOG.info("%s", lines.progress())
        if lines.full():
            return


def _lines(task: Mapping[str, Any], data_dir: str | None) -> Labelled | None:
    """Return what a task says of labelled lines; None where it has files, or no labeller."""
    origin = task.get("source") or {}
    if "labeller" not in origin or Source(task["name"], origin, data_dir).exists("train"):
        return None
    made = read(origin)
    assert isinstance(made, Labelled)
    return made


def _task(done: RunResult) -> Task:
    node = dict(done.config["task"])
    if target("task", node) is Classification:
        node.setdefault("source", {"pocket": node["name"]})  # made of a corpus: not needed here
        task: Task = build("task", node, None, None)
        if len(task.fields) == 1:
            task.max_tokens = min(task.max_tokens or _LONGEST, _LONGEST)
            return task
    raise UserError(
        f"{_KEY}=run:{done.run_id}: its task, {done.names['task']}, is not to label one text; give "
        "a run of a task like sst5."
    )


def _thresholds(given: Mapping[str, float], labels: list[str]) -> dict[str, float]:
    """Return the threshold of each label.

    Raises:
        UserError: one is for no label.
    """
    for key in given:
        if key not in (*labels, "first", "last", "other"):
            raise UserError(
                f"task.source.thresholds.{key}: the labeller has no such label; give first, last, "
                f"other, or {', '.join(labels)}."
            )
    ends = {labels[0]: "first", labels[-1]: "last"}
    other = given.get("other", 0.0)
    return {own: given.get(own, given.get(ends.get(own, ""), other)) for own in labels}


def _worded(pvp: Mapping[str, Any], labels: list[str], labeller: Labeller) -> dict[str, Any]:
    """Return a pattern with words for the labeller's labels, its own if they are for these."""
    own = pvp.get("words", {})
    return {**pvp, "words": own if set(own) == set(labels) else labeller.words()}


def _sure(
    labelled: Labelled, lines: list[Line], method: Method, engine: TorchEngine
) -> list[dict[str, Any]]:
    """Return rows of the lines that are long enough and of whose label the classifier is sure."""
    tokenizer, (field,) = method.backbone.tokenizer(), method.task.fields
    texts = [line.text for line in lines]
    sizes = map(len, tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else [])
    long = [line for line, size in zip(lines, sizes, strict=True) if size > _FEWEST]
    some = method.task.labels[0]
    features = method.encode([Example(line.id, {field: line.text}, some) for line in long])
    (answers,) = engine.predict([method], [features])
    if any(answer.probability is None for answer in answers):
        raise UserError(
            f"{_KEY}={labelled.labeller}: it tells no probabilities; give a run with "
            "method.readout=head or verbalizer."
        )
    least = labelled.thresholds
    return [
        {
            "id": line.id,
            "split": line.split,
            "text": line.text,
            "label": answer.value,
            "probability": round(answer.probability or 0.0, 4),
        }
        for line, answer in zip(long, answers, strict=True)
        if answer.value in least and (answer.probability or 0.0) > least[answer.value]
    ]
