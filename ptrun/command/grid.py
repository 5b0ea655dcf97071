"""`ptrun grid`: which method answers which kind of task on which backbone.

A cell that is not allowed is refused by the same check a run makes. With `steps=N` each allowed
cell whose data are at hand trains N steps on four examples and answers four others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from rich.console import Group
from rich.table import Table

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build, schema
from ptrun.config.compose import compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method, check_pair
from ptrun.readout.choose import KINDS
from ptrun.run.parts import usable
from ptrun.task.base import Task
from ptrun.training.member import Member
from ptrun.types import Example, Split

BACKBONES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5", "pocket_glm")
TASKS = {
    "classification": "pocket_sentiment",
    "regression": "pocket_similarity",
    "choice": "pocket_choice",
    "tagging": "pocket_ner",
    "extraction": "pocket_qa",
    "facts": "pocket_facts",
    "multi": "pocket_multi",
    "entity_choice": "record",
    "span_check": "wsc",
    "multispan": "pocket_multispan",
}
_FEW, _SOME = 4, 100  # examples that are learned from, and of which they are chosen


@dataclass(frozen=True)
class Cell:
    """One combination: `refused` says why it is not allowed, `outcome` what became of it."""

    method: str
    backbone: str
    kind: str
    refused: str | None
    outcome: str


class _Nowhere:
    """A journal that keeps nothing."""

    def log(self, row: Mapping[str, Any]) -> None:
        """Forget a row."""

    def save(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """Keep nothing."""

    def restore(self) -> None:
        """Return nothing."""


def cells(
    steps: int = 0,
    backbones: Sequence[str] = BACKBONES,
    tasks: Mapping[str, str] = TASKS,
    overrides: Sequence[str] = (),
) -> Iterator[Cell]:
    """Yield every cell: method (and read-out, where it has a choice) x backbone x kind of task."""
    rows = [row for method, node in methods().items() for row in _rows(method, node)]
    own = {kind: _task([f"task={task}", *overrides]) for kind, task in tasks.items()}
    examples = {kind: cache(partial(_examples, task)) for kind, task in own.items()}
    for backbone in backbones:
        for title, row in rows:
            config = _composed([f"backbone={backbone}", *row, *overrides])
            for kind, task in own.items():
                refused = _refusal(config, task)
                tried = _tried(config, task, examples[kind], steps) if steps and not refused else ""
                yield Cell(title, backbone, kind, refused, tried or ("-" if refused else "yes"))


def methods() -> dict[str, dict[str, Any]]:
    """Return the methods' configurations, presets aside.

    A preset is named after its method, as `idpg_s` is after `idpg`, and has its class and read-out,
    which decide what it can answer.
    """
    nodes = {option: _composed([f"method={option}"])["method"] for option in options("method")}
    form = {option: (node["_target_"], node.get("readout")) for option, node in nodes.items()}

    def is_preset(option: str) -> bool:
        return any(option.startswith(f"{o}_") and form[o] == form[option] for o in nodes)

    return {option: node for option, node in nodes.items() if not is_preset(option)}


def _task(overrides: Sequence[str]) -> Task:
    config = _composed(overrides)
    task: Task = build.build(config["task"], config["data_dir"], None)
    return task


def _composed(overrides: Sequence[str]) -> dict[str, Any]:
    return compose_run(overrides).config


def _rows(method: str, node: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    """Return a method's rows: one a read-out, where its file leaves that open.

    A file that names a pattern is for the tasks that have it: no method of its own.
    """
    if node.get("pattern"):
        return []
    if node.get("readout", "head") != "head":
        return [(method, [f"method={method}"])]
    chosen = [f"method={method}", "method.readout="]
    return [(f"{method}, {r}", [chosen[0], chosen[1] + r]) for r in KINDS]


def _refusal(config: dict[str, Any], task: Task) -> str | None:
    """Return why a cell is refused, if it is."""
    own: PretrainedBackbone = build.build(config["backbone"])
    method = _sharing(config["method"], task)
    try:
        check_pair(build.target(method), method, own, task)  # type: ignore[arg-type]
    except UserError as error:
        return str(error).splitlines()[0]
    return None


def _sharing(method: dict[str, Any], task: Task) -> dict[str, Any]:
    """Return a method's configuration, on several data sets with a pooler they can share."""
    return {**method, "pooler": "none"} if task.kind == "multi" and "pooler" in method else method


def _tried(config: dict[str, Any], task: Task, examples: Callable[[], Split], steps: int) -> str:
    """Train a few steps and answer; return the metric's value, or that there are no data."""
    try:
        split = examples()
    except UserError:
        return "no data"
    torch.manual_seed(1)
    backbone: PretrainedBackbone = build.build(config["backbone"])
    method: Method = build.build(_sharing(config["method"], task), backbone, task)
    engine: TorchEngine = build.build(config["hardware"], backbone)
    engine.load(tuned=method.tunes_backbone)
    engine.place([method])
    kept = usable(method, split)
    few = replace(kept, train=_some(kept.train, _FEW), dev=_some(kept.dev, _FEW))
    member = _member(method, few, {**config["train"], "max_steps": steps, "batch_size": _FEW})
    engine.fit([member])
    return f"failed: {member.failed}" if member.failed else f"{member.history[-1][task.metric]:.0f}"


def _examples(task: Task) -> Split:
    """Return some examples to learn from and some to answer."""
    dev = _some(task.load("dev"), _SOME)
    return Split(_some(task.load("train"), _SOME), dev, dev, {})


def _member(method: Method, split: Split, train: dict[str, Any]) -> Member:
    return Member(
        method,
        method.encode(split.train),
        method.encode(split.dev),
        lambda answers: method.task.score(answers, split.dev),
        method.task.metric,
        schema.train_config(train),
        1,
        _Nowhere(),
    )


def _some(examples: Sequence[Example], count: int) -> list[Example]:
    """Return so many examples from all over, so that each data set of several has one."""
    return list(examples[:: max(1, len(examples) // count)][:count])


def shown(steps: int) -> Group:
    """Return the table to print, and the reasons why cells are refused."""
    found = list(cells(steps))
    table = Table("method", "backbone", *TASKS, title=_title(steps), title_justify="left")
    for title, backbone in dict.fromkeys((c.method, c.backbone) for c in found):
        row = {c.kind: c.outcome for c in found if (c.method, c.backbone) == (title, backbone)}
        table.add_row(title, backbone, *(row[kind] for kind in TASKS))
    allowed = sum(cell.refused is None for cell in found)
    count = f"{allowed} of {len(found)} cells are allowed; the others are refused by name:"
    return Group(table, count, *dict.fromkeys(c.refused for c in found if c.refused))


def _title(steps: int) -> str:
    if not steps:
        return "what can be combined (`ptrun grid steps=2` tries each)"
    return f"each allowed cell: {steps} steps on {_FEW} examples, then its score on {_FEW} others"
