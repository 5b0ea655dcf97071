"""Chooses a task's pattern for a method: the one that is named, or the first that suits.

A blank infiller prefers patterns whose names start with `glm`.
"""

from collections.abc import Mapping
from typing import Any

from ptrun.backbone.family import Family
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.pvp import PVP, read_pvps
from ptrun.prompt.slots import Field, Hole
from ptrun.task.base import Task

_TEXTS = ("option", "entity")  # answers that may be a text of the example


def choose(
    task: Task,
    backbone: PretrainedBackbone,
    *,
    soft: bool,
    name: str | None = None,
    listed: bool = False,
) -> PVP:
    """Return a pattern of a task.

    `soft` says whether it has learned vectors. `listed` says that it lists its label words, which
    are read there, and has no mask. Otherwise a pattern without a mask must be named: an
    encoder-decoder then answers with its decoder's first token.

    Raises:
        UserError: there is no pattern of that name, or none that suits backbone and method.
    """
    pvps = read_pvps(task.pvps, task.labels)
    family = backbone.architecture
    misfits = {n: _misfit(pvp, task, family, soft=soft, listed=listed) for n, pvp in pvps.items()}
    if name is not None:
        return _named(pvps, task, name, misfits, _advice(soft=soft, listed=listed))
    for n, pvp in pvps.items():
        if not (misfits[n] or listed or pvp.pattern.masks):
            misfits[n] = "has no {mask}, so readout.pattern must name it"
    order = sorted(misfits, key=lambda n: family.has_blank and not n.startswith("glm"))
    found = next((pvps[n] for n in order if not misfits[n]), None)
    if found is None:
        reasons = "; ".join(f"{n} {reason}" for n, reason in misfits.items())
        raise UserError(
            f"task={task.name} has no pattern for this method on this {backbone.family} backbone "
            f"({reasons or 'it has none at all'}).\n{_advice(soft=soft, listed=listed)}"
        )
    return found


def _named(
    pvps: Mapping[str, PVP], task: Task, name: str, misfits: Mapping[str, str | None], advice: str
) -> PVP:
    if name not in pvps:
        raise UserError(
            f"readout.pattern={name}: task={task.name} has {', '.join(pvps) or 'no patterns'}."
        )
    if reason := misfits[name]:
        fit = [n for n, misfit in misfits.items() if not misfit]
        raise UserError(
            f"readout.pattern={name} {reason}; of task={task.name} these suit: "
            f"{', '.join(fit) or 'none'}.\n{advice}"
        )
    return pvps[name]


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
    if family.left_to_right and not _ends_in_mask(pvp):
        return "does not end in {mask}, where a causal backbone is read"
    if not family.fills_masks and (pvp.pattern.masks > 1 or pvp.rule == "mean"):
        return "has several masks, which a masked backbone alone reads"
    if (task.answer in _TEXTS or task.fills_gap) and pvp.verbalizer(1) is None:
        return _misfit_of_texts(pvp, task, family)
    return None


def _misfit_of_texts(pvp: PVP, task: Task, family: Family) -> str | None:
    """Return why a pattern does not suit answers that are texts of the example, or None."""
    if task.fills_gap and not (family.fills_masks or family.has_blank):
        return "needs its gap filled, which masked and infilling backbones alone do"
    if family.fills_masks and not pvp.pattern.many_masks:
        return "has one {mask}, but its answers are texts of several tokens; write {masks}"
    return None


def _ends_in_mask(pvp: PVP) -> bool:
    last: Any = pvp.pattern.parts[-1]
    if isinstance(last, Field):
        return last.ending == "fact_start"
    return isinstance(last, Hole) and last.kind != "soft"


def _advice(*, soft: bool, listed: bool) -> str:
    slot = "{soft} slots" if soft else "no {soft} slot"
    read = "{words|commas}, no {mask}" if listed else "a {mask}"
    where = "task=csv: task.pattern=@FILE; other tasks: pvps in the task's YAML"
    return f"Write one ({where}): with {slot} and {read}."


def can_fill(backbone: PretrainedBackbone) -> bool:
    """Return whether a backbone predicts the words of a gap inside a text."""
    return backbone.architecture.fills_masks or backbone.architecture.has_blank
