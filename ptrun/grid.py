"""`ptrun grid`: which method answers which kind of task on which backbone.

A cell that is not allowed is refused by the same check a run makes. With `steps=N` each allowed
cell whose data are at hand trains N steps on four examples and answers four others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from rich.console import Group
from rich.table import Table

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build, schema
from ptrun.config.compose import compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.hardware.member import Member
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method, check_pair
from ptrun.parts import usable
from ptrun.readout.choose import KINDS
from ptrun.task.base import Task
from ptrun.types import Example, Split

BACKBONES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5")
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
    nodes = {kind: _composed([f"task={task}", *overrides])["task"] for kind, task in tasks.items()}
    for backbone in backbones:
        for title, own in rows:
            config = _composed([f"backbone={backbone}", *own, *overrides])
            for kind, node in nodes.items():
                yield _cell(title, backbone, kind, {**config, "task": node}, steps)


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


def _cell(title: str, backbone: str, kind: str, config: dict[str, Any], steps: int) -> Cell:
    own: PretrainedBackbone = build.build(config["backbone"])
    task: Task = build.build(config["task"], config["data_dir"], None)
    if kind == "multi" and "pooler" in config["method"]:  # one that all data sets can share
        config = {**config, "method": {**config["method"], "pooler": "none"}}
    try:
        check_pair(build.target(config["method"]), config["method"], own, task)  # type: ignore[arg-type]
    except UserError as error:
        return Cell(title, backbone, kind, str(error).splitlines()[0], "-")
    return Cell(title, backbone, kind, None, _tried(config, own, task, steps) if steps else "yes")


def _tried(config: dict[str, Any], backbone: PretrainedBackbone, task: Task, steps: int) -> str:
    """Train a few steps and answer; return the metric's value, or that there are no data."""
    try:
        train, dev = task.load("train"), task.load("dev")
    except UserError:
        return "no data"
    torch.manual_seed(1)
    method: Method = build.build(config["method"], backbone, task)
    engine: TorchEngine = build.build(config["hardware"], backbone)
    backbone.load(engine.weight_type(tuned=method.tunes_backbone))
    engine.place([method])
    dev = _some(dev, _SOME)
    kept = usable(method, Split(_some(train, _SOME), dev, dev, {}))
    few = replace(kept, train=_some(kept.train, _FEW), dev=_some(kept.dev, _FEW))
    member = _member(method, few, {**config["train"], "max_steps": steps, "batch_size": _FEW})
    engine.fit([member])
    return f"failed: {member.failed}" if member.failed else f"{member.history[-1][task.metric]:.0f}"


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
