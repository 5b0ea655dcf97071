"""The group `readout`: `auto` is a method's first read-out that can give the answers of a task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import build
from ptrun.config.components import TARGET
from ptrun.errors import UserError
from ptrun.readout.reading import Reading, known
from ptrun.task.dataset import Task
from ptrun.types import Classes

AUTO = "auto"
READINGS = Classes(
    head="ptrun.readout.heads.HeadReading",
    verbalizer="ptrun.readout.verbalizer.VerbalizerReading",
    entailment="ptrun.readout.heads.EntailmentReading",
    class_words="ptrun.readout.original.ClassWordsReading",
    writing="ptrun.readout.writing.WritingReading",
    distillation="ptrun.readout.distillation.DistillationReading",
)
"""The read-outs of ptrun, by option; each is imported when it is used."""


def automatic(task: Task, offered: Sequence[str]) -> type[Reading]:
    """Return the first of a method's read-outs that reads the kind of task."""
    for reading in _fitting(task, offered):
        return reading
    raise _cannot(AUTO, task, offered)


def _fitting(task: Task, offered: Iterable[str]) -> Iterator[type[Reading]]:
    """Yield the read-outs of a method that read the kind of task, in order of preference."""
    return (READINGS[n] for n in offered if n in READINGS and READINGS[n].reads(task))


def _cannot(option: str, task: Task, offered: Sequence[str]) -> UserError:
    fit = [*_fitting(task, offered)]
    typed = "" if fit else "method=fine_tuning "
    typed += f"readout={next(iter(fit or _fitting(task, READINGS))).name}"
    return UserError(
        f"readout={option} cannot answer task={task.name}, which is {task.kind}; type {typed}."
    )


def resolved(
    option: str,
    node: Mapping[str, Any],
    typed: Set[str],
    backbone: PretrainedBackbone,
    task: Task,
    *,
    offered: Sequence[str],
    soft: bool,
) -> tuple[str, dict[str, Any]]:
    """Return the option and node of a run's read-out, with the keys that change a number.

    `offered` are the method's read-outs in order of preference, and `soft` says whether it learns
    vectors of a pattern. Keys at their default are left out, so that a new one moves no id. A key
    that a file gives and that has no effect here is left out too; one that was `typed` is refused,
    and so is a read-out that cannot answer the task.
    """
    if option == AUTO:
        chosen = automatic(task, offered)
        option, node = chosen.name, {TARGET: f"{chosen.__module__}.{chosen.__qualname__}", **node}
    if option in READINGS and option not in offered:
        raise UserError(
            f"readout={option}: this method supports only {' or '.join(offered)}; leave it out, or "
            "use another method, such as method=fine_tuning."
        )
    reading: type[Reading] = build.target("readout", node)
    keys = {TARGET: node[TARGET], **known(reading, node)}
    for key in sorted(node.keys() & typed - known(reading, dict.fromkeys(typed)).keys()):
        owners = [other.name for other in _fitting(task, offered) if known(other, {key: None})]
        if owners:
            raise UserError(
                f"readout.{key}: readout={option} has no such key; leave it out, or type "
                f"readout={owners[0]}."
            )
    build.check({"readout": {**keys, **{k: v for k, v in node.items() if k in typed}}})
    if not reading.reads(task):
        raise _cannot(option, task, offered)
    asked: Reading = build.build("readout", keys)
    used = asked.check(backbone, task, soft=soft, keys=typed)
    stored = asked.stored(backbone)
    return option, {TARGET: node[TARGET], **{k: v for k, v in stored.items() if k in used}}
