"""Which method can be combined with which backbone and kind of task, for `ptrun grid`."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from itertools import groupby
from typing import Any

import torch
from rich.console import Group
from rich.table import Table

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.config.compose import Composed, compose_run, sources
from ptrun.config.paths import options
from ptrun.config.schema import TrainConfig
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method, built, check_pair
from ptrun.planning.overview import StepClock
from ptrun.readout.choose import AUTO
from ptrun.runs.parts import usable
from ptrun.task.dataset import Task
from ptrun.training.member import Member
from ptrun.types import Example, Split

BACKBONES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5", "pocket_glm")
TASKS = {
    "classification": "pocket_sentiment",
    "multilabel": "pocket_two_topics",
    "regression": "pocket_similarity",
    "choice": "pocket_choice",
    "tagging": "pocket_ner",
    "extraction": "pocket_qa",
    "facts": "pocket_facts",
    "multi": "pocket_multi",
    "entity_choice": "record",
    "span_check": "wsc",
    "multispan": "pocket_multispan",
    "generation": "pocket_writing",
}
_READOUT = "readout"
_TAUGHT = {"distillation": ["readout.document=A document for the teacher."]}
"""What a read-out needs."""
_FEW, _SOME = 4, 100  # examples that are learned from, and of which they are chosen


@dataclass(frozen=True)
class Combination:
    """One combination: `refused` says why it is not allowed, `outcome` what became of it."""

    method: str
    backbone: str
    kind: str
    refused: str | None
    outcome: str


def cells(
    steps: int = 0,
    backbones: Sequence[str] = BACKBONES,
    tasks: Mapping[str, str] = TASKS,
    overrides: Sequence[str] = (),
) -> Iterator[Combination]:
    """Yield every cell: method (and read-out, where it has a choice) x backbone x kind of task.

    Args:
        steps: of training in each cell; 0 only asks whether it is allowed.
        backbones: their options.
        tasks: an option for each kind.
        overrides: for every run, task and backbone.
    """
    rows = [row for method, node in methods().items() for row in _rows(method, node)]
    loaded = {kind: task_of([f"task={option}", *overrides]) for kind, option in tasks.items()}
    examples = cache(lambda kind: some_examples(loaded[kind]))
    composed = cache(lambda *typed: compose_run([*typed, *overrides]))
    for backbone in backbones:
        typed = [f"backbone={backbone}"]
        model = cache(lambda typed=typed: composed(*typed).components()["backbone"].build())
        for title, row in rows:
            run = composed(*(typed if steps else []), *row)  # training reads its learning rates
            method = run.components()["method"].target
            for kind, task in loaded.items():
                refused = refusal(method, readout_of(run, task), model, task)
                outcome = "-" if refused else "yes"
                if steps and not refused:
                    refused, outcome = _tried(run, task, partial(examples, kind), steps)
                yield Combination(title, backbone, kind, refused, outcome)


def methods() -> dict[str, Mapping[str, Any]]:
    """Return the methods' configurations, presets aside.

    A preset is named after its method, as `idpg_s` is after `idpg`, and has its class and read-out,
    which decide what it can answer.
    """
    nodes = _nodes(sources())
    form = {option: (node["_target_"], node[_READOUT][0]) for option, node in nodes.items()}
    return {
        option: node
        for option, node in nodes.items()
        if not any(option.startswith(f"{o}_") and form[o] == form[option] for o in nodes)
    }


@lru_cache(maxsize=1)
def _nodes(_: Hashable) -> dict[str, Mapping[str, Any]]:
    """Return the configuration of each method; the argument stands for the files of options."""
    runs = {option: compose_run([f"method={option}"]) for option in options("method")}
    return {
        option: {**run.components()["method"].node, _READOUT: run.readout}
        for option, run in runs.items()
    }


def fitting(backbone: PretrainedBackbone, task: Task) -> dict[str, str]:
    """Return each method with why it does not work with a backbone; "" if it does."""
    reasons: dict[str, str] = {}
    for method, node in methods().items():
        for _, row in _rows(method, node):
            composed = compose_run(row)
            component, readout = composed.components()["method"], readout_of(composed, task)
            try:
                check_pair(component.target, *readout, backbone, task)
                built(component, readout, backbone, task)
                reasons[method] = ""
            except UserError as error:
                reasons.setdefault(method, str(error).splitlines()[0])
    return reasons


def task_of(overrides: Sequence[str]) -> Task:
    """Return the task of some overrides."""
    composed = compose_run(overrides)
    task: Task = composed.components()["task"].build(composed.data_dir, None)
    return task


def _rows(method: str, node: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return a method's rows: one a read-out, where its file leaves that open.

    A file that names a pattern is for the tasks that have it: no method of its own.
    """
    option, read = node[_READOUT]
    if read.get("pattern"):
        return []
    offered = build.target("method", node).readouts
    typed = f"method={method}"
    if option != AUTO or len(offered) == 1:
        return [(method, [typed, *_TAUGHT.get(option, [])])]
    return [(f"{method}, {r}", [typed, f"readout={r}", *_TAUGHT.get(r, [])]) for r in offered]


def refusal(
    method: type[Method],
    readout: tuple[str, Mapping[str, Any]],
    backbone: Callable[[], PretrainedBackbone],
    task: Task,
) -> str | None:
    """Return why a combination is refused, if it is; a backbone that cannot be built is too."""
    try:
        check_pair(method, *readout, backbone(), task)
    except UserError as error:
        return str(error).splitlines()[0]
    return None


def readout_of(composed: Composed, task: Task) -> tuple[str, Mapping[str, Any]]:
    """Return the read-out; on several data sets with a pooler that they can share."""
    option, node = composed.readout
    return option, {**node, "pooler": "none"} if task.answer == "several" else node


def _tried(
    composed: Composed, task: Task, examples: Callable[[], Split], steps: int
) -> tuple[str | None, str]:
    """Train a few steps and answer; return why not, and the metric's value."""
    try:
        split = examples()
    except UserError:
        return None, "no data"
    torch.manual_seed(1)
    components = composed.components()
    backbone: PretrainedBackbone = components["backbone"].build()
    try:
        method = built(components["method"], readout_of(composed, task), backbone, task)
    except UserError as error:  # known once the method is built
        return str(error).splitlines()[0], "-"
    engine: TorchEngine = components["hardware"].build(backbone)
    engine.load(tuned=method.tunes_backbone)
    engine.place([method])
    split = usable(method, split)
    few = replace(split, train=some(split.train, _FEW), dev=some(split.dev, _FEW))
    member = member_of(method, few, replace(composed.train, max_steps=steps, batch_size=_FEW))
    engine.fit([member])
    if member.failed:
        return None, f"failed: {member.failed}"
    last = member.history[-1]  # texts are not written here: their loss
    score = last.get(task.metric)
    return None, f"loss {last['loss']:.1f}" if score is None else f"{score:.0f}"


def some_examples(task: Task) -> Split:
    """Return some examples to learn from and some to answer.

    Raises:
        UserError: its data are not here.
    """
    dev = some(task.load("dev"), _SOME)
    return Split(some(task.load("train"), _SOME), dev, dev, {})


def member_of(method: Method, split: Split, train: TrainConfig) -> Member:
    """Return a member that trains on a split and keeps nothing."""
    return Member(
        method,
        method.encode(split.train),
        method.encode(split.dev),
        lambda answers: method.task.score(answers, split.dev),
        method.task.metric,
        train,
        1,
        StepClock(),
    )


def some(examples: Sequence[Example], count: int) -> list[Example]:
    """Return so many examples from all over, so that each data set of several has one."""
    return list(examples[:: max(1, len(examples) // count)][:count])


def table(steps: int) -> Group:
    """Return the table of combinations, and the reasons why some are rejected."""
    title = "valid combinations (`ptrun grid --steps 2` tries each)"
    if steps:
        title = f"each valid combination: {steps} steps on {_FEW} examples, then its score on "
        title += f"{_FEW} others"
    shown = Table("method", "backbone", *TASKS, title=title, title_justify="left")
    combinations = list(cells(steps))
    for (method, backbone), row in groupby(combinations, lambda cell: (cell.method, cell.backbone)):
        outcomes = {cell.kind: cell.outcome for cell in row}
        shown.add_row(method, backbone, *(outcomes[kind] for kind in TASKS))
    reasons = [cell.refused for cell in combinations if cell.refused]
    allowed = len(combinations) - len(reasons)
    count = f"{allowed} of {len(combinations)} combinations are valid. The others are rejected "
    return Group(shown, f"{count}because:", *dict.fromkeys(reasons))
