"""Lines of a corpus labelled by a classifier: PPT pre-trains prompts for single texts on them.

The classifier is another finished run, named by `task.source.labeller`. Lines are labelled when
their rows are read. They are kept in shards below `<outputs>/.labels`, in a folder
named by a hash of corpus, classifier and settings. So nothing is labelled twice, and a killed run
resumes after the last complete shard.
"""

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice, takewhile
from pathlib import Path
from typing import Any

from ptrun.config.build import build, target
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.files import below
from ptrun.folder import request, result
from ptrun.papers.corpus import SPLITS, MadeExamples, part_of
from ptrun.runs.finished import Finished, backbone_of, learned
from ptrun.start import saved_prompt
from ptrun.task.classification import Classification
from ptrun.task.dataset import Task
from ptrun.task.stored import Stored, is_intact, stored
from ptrun.types import Example, RunResult

_LOG = logging.getLogger(__name__)
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


@dataclass(frozen=True)
class RowShards:
    """Rows in numbered files of a folder, from 0 to the first that is missing or damaged.

    Each file is complete, so an interrupted job resumes. Its first row is its head: the number of
    corpus lines that it covers, and the number of rows of each split.
    """

    folder: Path

    def heads(self) -> Iterator[dict[str, Any]]:
        """Yield the head of each file."""
        return (shard[0] for shard in self._shards())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows."""
        return (row for shard in self._shards() for row in shard[1:])

    def write(self, number: int, lines: int, rows: Sequence[dict[str, Any]]) -> None:
        """Write a file atomically; `lines` corpus lines gave the `rows`."""
        head = {"lines": lines, "kept": Counter(row["split"] for row in rows)}
        stored(self._file(number), lambda: [head, *rows], dict)

    def _shards(self) -> Iterator[Stored[dict[str, Any]]]:
        files = takewhile(is_intact, map(self._file, count()))
        return (Stored(file, dict) for file in files)

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:06}.arrow"


_REPORT_EVERY = 10.0  # seconds
_SHORTER, _LONGEST = 10, 10_000  # characters of a line: more than, and at most
_SHARD = 4096  # lines
_LOCATIONS = (
    "labeller",
    "shards",
    "hardware",
    "store",
)  # no part of the identity: `fingerprint` stands for them


@dataclass(frozen=True, kw_only=True)
class Labelled(MadeExamples):
    """Lines whose label has a probability above a threshold.

    Args beyond those of `MadeExamples`, whose `shares` count lines here:
        labeller: `run:RUN`, a finished run of a classification task.
        thresholds: a label's probability must be above its threshold; by label, or for the `first`,
            the `last` and each `other` label. PPT: .95, .7 and .5 for five grades.
        fingerprint, shards, hardware: the classifier's fingerprint, the folder of the labelled
            lines and what runs the classifier; a plan fills them in.
    """

    labeller: str
    thresholds: Mapping[str, float] = field(default_factory=dict)
    fingerprint: str = ""
    shards: str | None = None
    hardware: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for label, least in self.thresholds.items():
            if not (isinstance(least, int | float) and 0 <= least < 1):
                raise UserError(
                    f"task.source.thresholds.{label} is {least!r}; give a probability from 0 to 1."
                )

    @classmethod
    def completed(cls, composed: Composed) -> Mapping[str, Any]:
        """Return the task with the labels and words of the labeller; without one as it is."""
        task = super().completed(composed)
        lines: Labelled = build("task", task["source"])
        if not lines.labeller.removeprefix("run:"):
            return task  # reading rows refuses it; a plan needs none
        hardware = composed.components()["hardware"].node
        labeller = Labeller.of(lines.labeller, hardware, composed.outputs, composed.name)
        labels = list(labeller.task.labels)
        lines = replace(
            lines,
            labeller=f"run:{labeller.folder}",
            fingerprint=labeller.fingerprint(),
            thresholds=_thresholds(lines.thresholds, labels),
            hardware=hardware,
        )
        # more examples only add shards
        identity = lines.identity((*_LOCATIONS, "examples")).encode()
        name = hashlib.sha256(identity).hexdigest()[:16]
        shards = below(composed.outputs, ".labels", name)
        source = {**task["source"], **vars(lines), "shards": str(shards)}
        pvps = {}
        for name, pvp in task["pvps"].items():  # its own words if they are for these labels
            words = pvp.get("words", {})
            pvps[name] = {**pvp, "words": words if set(words) == set(labels) else labeller.words()}
        names = {label: label for label in labels}
        return {**task, "source": source, "labels": names, "pvps": pvps}

    def digest(self) -> str:
        """Return what identifies the examples, independent of where the files are."""
        return self.identity(_LOCATIONS)

    def every(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield all rows of a split from the shards; lines are labelled first."""
        self._label()
        return (row for row in self.kept.rows() if row["split"] == split)

    def none(self, split: str) -> str:
        """Return the error message for a split without examples."""
        return (
            f"no line of {split} has a label above its threshold; lower task.source.thresholds,\n"
            "or give a larger corpus."
        )

    @property
    def kept(self) -> RowShards:
        """The shards."""
        if self.shards is None:
            raise UserError(f"task.source.labeller={self.labeller}: expected run:RUN_ID.")
        return RowShards(Path(self.shards))

    def _label(self) -> None:
        """Label the lines that are in no shard yet."""
        if self.full():
            return
        assert self.hardware is not None
        labeller = Labeller.of(self.labeller, self.hardware)
        label = labeller.labels(self.thresholds)
        _LOG.info("labelling %s with %s", self.corpus, labeller.folder)
        reported = time.monotonic()
        for number, block in self.waiting():
            self.kept.write(number, len(block), label(block))
            if time.monotonic() - reported > _REPORT_EVERY:
                reported = time.monotonic()
                lines, counts = self._found()
                kept = [f"{part} {counts[part]:,}/{self.examples[part]:,}" for part in SPLITS]
                _LOG.info("%s lines labelled, kept %s", f"{sum(lines):,}", ", ".join(kept))
            if self.full():
                return

    def full(self) -> bool:
        """Return whether the shards have the requested examples, or the whole corpus."""
        lines, counts = self._found()
        ended = bool(lines) and lines[-1] < _SHARD
        return ended or all(counts[split] >= self.examples[split] for split in SPLITS)

    def _found(self) -> tuple[list[int], Counter[str]]:
        """Return the lines of each shard, and the rows of each split."""
        heads = list(self.kept.heads())
        kept = sum((Counter(head["kept"]) for head in heads), Counter[str]())
        return [head["lines"] for head in heads], kept

    def waiting(self) -> Iterator[tuple[int, list[CorpusLine]]]:
        """Yield the number and the lines of each missing shard; only the last is not full."""
        done = len(list(self.kept.heads()))
        lines = islice(self._lines(), done * _SHARD, None)
        for number in count(done):
            block = list(islice(lines, _SHARD))
            yield number, block
            if len(block) < _SHARD:
                return

    def _lines(self) -> Iterator[CorpusLine]:
        for number, document in enumerate(self.documents()):
            for place, text in enumerate(document):
                if _SHORTER < len(text) <= _LONGEST:
                    split = SPLITS[part_of([text], self.shares)]
                    yield CorpusLine(f"{number}-{place}", split, text)


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
