"""Which method can be combined with which backbone and kind of task, for `ptrun grid`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from rich.console import Group
from rich.table import Table

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import Composed, compose_run
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.method.base import Method, built, check_pair
from ptrun.readout.choose import AUTO
from ptrun.task.dataset import Task

BACKBONES = ("pocket_bert", "pocket_electra", "pocket_gpt2", "pocket_t5", "pocket_glm")
TASKS = {
    "classification": "pocket_sentiment",
    "multilabel": "pocket_two_topics",
    "regression": "pocket_similarity",
    "choice": "pocket_choice",
    "tagging": "pocket_ner",
    "tags": "pocket_words",
    "extraction": "pocket_qa",
    "facts": "pocket_facts",
    "multi": "pocket_multi",
    "entity_choice": "record",
    "span_check": "wsc",
    "multispan": "pocket_multispan",
    "generation": "pocket_writing",
}
_TAUGHT = {"distillation": ["readout.document=A document for the teacher."]}
"""What a read-out needs."""


@dataclass(frozen=True)
class Combination:
    """One combination; `refused` says why it is not allowed."""

    method: str
    backbone: str
    kind: str
    refused: str | None


def cells(
    backbones: Sequence[str] = BACKBONES,
    tasks: Mapping[str, str] = TASKS,
    overrides: Sequence[str] = (),
) -> Iterator[Combination]:
    """Yield every cell: method (and read-out, where it has a choice) x backbone x kind of task.

    A backbone is a name, or typed as `backbone.path=FOLDER`. `tasks` has an option for each kind;
    `overrides` are for every run, task and backbone.
    """
    loaded = {kind: task_of([f"task={option}", *overrides]) for kind, option in tasks.items()}
    composed = {title: compose_run([*row, *overrides]) for title, row in rows().items()}
    for backbone in backbones:
        typed = backbone if "=" in backbone else f"backbone={backbone}"
        components = compose_run([typed, *overrides]).components()
        model = cache(components["backbone"].build)
        for title, run in composed.items():
            method = run.components()["method"].target
            for kind, task in loaded.items():
                refused = refusal(method, readout_of(run, task), model, task)
                yield Combination(title, backbone, kind, refused)


def methods() -> dict[str, Composed]:
    """Return a run of each method, presets aside.

    A preset is named after its method, as `idpg_s` is after `idpg`, and has its class and read-out,
    which decide what it can answer.
    """
    runs = {option: compose_run([f"method={option}"]) for option in options("method")}
    form = {o: (run.config["method"]["_target_"], run.readout[0]) for o, run in runs.items()}
    return {
        option: run
        for option, run in runs.items()
        if not any(option.startswith(f"{o}_") and form[o] == form[option] for o in runs)
    }


def rows() -> dict[str, list[str]]:
    """Return the rows of the table, as typed: one a method and read-out, where that is open.

    A file that names a pattern is for the tasks that have it: no method of its own.
    """
    typed: dict[str, list[str]] = {}
    for method, run in methods().items():
        option, read = run.readout
        offered = run.components()["method"].target.readouts
        if read.get("pattern"):
            continue
        if option != AUTO or len(offered) == 1:
            typed[method] = [f"method={method}", *_TAUGHT.get(option, [])]
            continue
        for name in offered:
            row = [f"method={method}", f"readout={name}", *_TAUGHT.get(name, [])]
            typed[f"{method}, {name}"] = row
    return typed


def fitting(backbone: PretrainedBackbone, task: Task) -> dict[str, str]:
    """Return each method with why it does not work with a backbone; "" if it does."""
    reasons: dict[str, str] = {}
    for title, row in rows().items():
        method, composed = title.partition(",")[0], compose_run(row)
        component, readout = composed.components()["method"], readout_of(composed, task)
        try:
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


def table(backbones: Sequence[str] = BACKBONES) -> Group:
    """Return the table of combinations, and the reasons why some are rejected."""
    shown = Table("method", "backbone", *TASKS, title="valid combinations", title_justify="left")
    combinations = list(cells(backbones))
    for (method, backbone), row in groupby(combinations, lambda cell: (cell.method, cell.backbone)):
        outcomes = {cell.kind: "-" if cell.refused else "yes" for cell in row}
        shown.add_row(method, backbone, *(outcomes[kind] for kind in TASKS))
    reasons = [cell.refused for cell in combinations if cell.refused]
    allowed = len(combinations) - len(reasons)
    count = f"{allowed} of {len(combinations)} combinations are valid. The others are rejected "
    return Group(shown, f"{count}because:", *dict.fromkeys(reasons))
