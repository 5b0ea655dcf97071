"""A finished run that labels the lines of a corpus (PPT, classification).

    ptrun task=yelp_full method=fine_tuning backbone=roberta_base
    ptrun task=ppt_cls task.source.labeller=run:RUN_ID task.source.corpus=DIR

The first trains a classifier; the second labels lines with it, then trains.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptrun.config.build import build, target
from ptrun.errors import UserError
from ptrun.folder import request, result
from ptrun.runs.finished import Finished, backbone_of, learned
from ptrun.start import saved_prompt
from ptrun.task.classification import Classification
from ptrun.task.dataset import Task
from ptrun.types import Example, RunResult

_MIN_TOKENS, _MAX_TOKENS = 5, 256  # a line has more than the first and is truncated to the second
_KEY = "task.source.labeller"


@dataclass(frozen=True)
class CorpusLine:
    """A line, its place in the corpus as `id`, and its split, which its text alone decides."""

    id: str
    split: str
    text: str


class Labeller(Finished):
    """A finished run of a classification task with one text field."""

    @classmethod
    def of(
        cls,
        typed: str,
        hardware: Mapping[str, Any],
        outputs: Path = Path("outputs"),
        name: str = "runs",
    ) -> "Labeller":
        """Return the finished run `run:RUN` of a task that labels one text, on the `hardware`."""
        kind, _, run = typed.partition(":")
        if kind != "run":
            raise UserError(f"{_KEY}={typed}: expected a finished run. Type {_KEY}=run:RUN_ID.")
        folder = saved_prompt.find(run, outputs, name, key=_KEY).resolve()
        done = result.read(folder)
        if done is None or done.status != "finished":
            raise UserError(f"{_KEY}=run:{run}: {folder} is not finished. Type its command again.")
        families = request.read(folder).config["backbone"].get("families")
        task, backbone = _task(done), backbone_of(done, families=families)
        tensors, _ = learned(folder, done, backbone)
        engine = build("hardware", hardware, backbone)
        nodes = done.config["method"], done.config["readout"]
        return cls(folder, done, task, backbone, engine, *nodes, tensors)

    def fingerprint(self) -> str:
        """Return what identifies the labels: learned tensors, configuration, backbone, precision.

        The configuration counts because `manual_prompt` may learn nothing.
        """
        digest = saved_prompt.digest({"": self.tensors})
        computed = f"{self.engine.precision} {self.engine.quantization}".removesuffix(" none")
        return f"{digest} {self.done.group} {self.backbone.weights} {computed}"

    def words(self) -> dict[str, list[str]]:
        """Return the words of each label: PPT's, or the first pattern's; refuse a task without."""
        pvps = self.task.pvps
        ordered = [pvps[name] for name in sorted(pvps, key=lambda name: name != "ppt_pt")]
        words = next((pvp["words"] for pvp in ordered if "words" in pvp), None)
        if words is None:
            raise UserError(
                f"{_KEY}=run:{self.folder}: its task {self.task.name} has no label words. Give "
                "them as task.pvps.ppt_pt.words={LABEL: [WORD], ...}."
            )
        return {label: list(words[label]) for label in self.task.labels}

    def labels(
        self, thresholds: Mapping[str, float]
    ) -> Callable[[Sequence[CorpusLine]], list[dict[str, Any]]]:
        """Load the run; return what labels lines, leaving out short and less probable ones."""
        method = self.load()[""]
        tokenizer, (field,) = method.backbone.tokenizer(), method.task.fields
        any_label = method.task.labels[0]

        def label(block: Sequence[CorpusLine]) -> list[dict[str, Any]]:
            texts = [line.text for line in block]
            ids = tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
            counted = zip(block, map(len, ids), strict=True)
            long = [line for line, tokens in counted if tokens > _MIN_TOKENS]
            examples = [Example(line.id, {field: line.text}, any_label) for line in long]
            (predictions,) = self.engine.predict([method], [method.encode(examples)])
            rows = []
            for line, prediction in zip(long, predictions, strict=True):
                name, probability = prediction.value, prediction.probability
                if probability is None:
                    raise UserError(
                        f"{_KEY}=run:{self.folder}: its read-out gives no probabilities. Give a "
                        "run with readout=head or verbalizer."
                    )
                if name in thresholds and probability > thresholds[name]:
                    row = {"id": line.id, "split": line.split, "text": line.text, "label": name}
                    rows.append({**row, "probability": round(probability, 4)})
            return rows

        return label


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
