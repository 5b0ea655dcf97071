"""Chooses a task's pattern for a method: the one that is named, or the first that suits."""

from collections.abc import Sequence
from typing import Any

from ptrun.backbone.family import Family
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.pattern import PVP, read_pvps
from ptrun.pattern.slots import Field, Hole
from ptrun.task.dataset import Task
from ptrun.task.multilabel import NONE

_TEXTS = ("option", "entity")  # answers that may be a text of the example


def choose(
    task: Task,
    backbone: PretrainedBackbone,
    *,
    soft: bool,
    name: str | None = None,
    listed: bool = False,
) -> PVP:
    """Return a pattern of a task; a blank infiller prefers those whose names start with `glm`.

    `soft` says whether it has learned vectors. `listed` says that it lists its label words, which
    are read there, and has no mask. Otherwise a pattern without a mask must be named: an
    encoder-decoder then answers with its decoder's first token.
    """
    pvps = read_pvps(task.pvps, worded(task))
    family = backbone.architecture
    misfits = {n: _misfit(pvp, task, family, soft=soft, listed=listed) for n, pvp in pvps.items()}
    fit = [n for n in pvps if not misfits[n]]
    if name is not None and name in fit:
        return pvps[name]
    if name is not None:
        reason = misfits.get(name) or "is no pattern"
        wrong = f"readout.pattern={name} {reason}; of task={task.name} these suit: "
        wrong += f"{', '.join(fit) or 'none'}."
    else:
        for n in fit if not listed else ():
            if not pvps[n].pattern.masks:
                misfits[n] = "has no {mask}, so readout.pattern must name it"
        order = sorted(misfits, key=lambda n: family.has_blank and not n.startswith("glm"))
        if chosen := next((pvps[n] for n in order if not misfits[n]), None):
            return chosen
        reasons = "; ".join(f"{n} {reason}" for n, reason in misfits.items())
        wrong = f"task={task.name} has no pattern for this method on this {backbone.family} "
        wrong += f"backbone ({reasons or 'it has none at all'})."
    slot = "{soft} slots" if soft else "no {soft} slot"
    read = "{words|commas}, no {mask}" if listed else "a {mask}"
    where = "task=csv: task.pattern=@FILE; other tasks: pvps in the task's YAML"
    raise UserError(f"{wrong}\nWrite one ({where}): with {slot} and {read}.")


def worded(task: Task) -> Sequence[str]:
    """Return what label words are for: the labels, and no label where a row may have several."""
    if task.answer != "labels":
        return task.labels
    if NONE in task.labels:
        raise UserError(
            f"task={task.name} has a label {NONE!r}, which label words need for no label; rename "
            "it, or use readout=head."
        )
    return [*task.labels, NONE]


def _misfit(pvp: PVP, task: Task, family: Family, *, soft: bool, listed: bool) -> str | None:
    """Return why a pattern does not suit, or None."""
    if bool(pvp.pattern.softs) != soft:
        return "has no {soft} slot" if soft else "has {soft} slots, which method=ptuning learns"
    if listed and pvp.pattern.listing("words") is None:
        return "has no {words|commas}"
    if listed:
        return "has a {mask}" if pvp.pattern.masks else None
    if pvp.pattern.masks == 0 and not family.has_decoder:
        return "has no {mask}, which an encoder-decoder alone can do without"
    last: Any = pvp.pattern.parts[-1]
    is_gap = isinstance(last, Field) and last.ending == "fact_start"
    is_gap |= isinstance(last, Hole) and last.kind != "soft"
    if family.left_to_right and not is_gap:
        return "does not end in {mask}, where a causal backbone is read"
    if not family.fills_masks and (pvp.pattern.masks > 1 or pvp.rule == "mean"):
        return "has several masks, which a masked backbone alone reads"
    if (task.answer not in _TEXTS and not task.fills_gap) or pvp.verbalizer(1) is not None:
        return None
    if task.fills_gap and not (family.fills_masks or family.has_blank):
        return "needs its gap filled, which masked and infilling backbones alone do"
    if family.fills_masks and not pvp.pattern.many_masks:
        return "has one {mask}, but its answers are texts of several tokens; write {masks}"
    return None
