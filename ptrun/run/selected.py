"""How the reported step was selected, for the manifest."""

from typing import Any

from ptrun.config.schema import Select
from ptrun.run.parts import Part
from ptrun.training.member import Member
from ptrun.training.selection_bias import selection_bias


def selection(member: Member, part: Part, metric: str) -> dict[str, Any]:
    """Return the step of a trained part, what selected it, and from how many evaluations."""
    counts = {name: len(getattr(part.split, name)) for name in ("train", "dev", "test")}
    return {
        "best_step": member.best_step,
        "selected_by": member.train.select.value,
        "candidates": len(member.history),
        "selection_bias": _bias(member, metric, len(part.split.dev)),
        "history": member.history,
        "answered": {**counts, "left_out": part.left_out},
    }


def _bias(member: Member, metric: str, examples: int) -> float | None:
    """Return the expected optimism of the best dev score, in points; None if unknown."""
    if member.train.select is not Select.metric:
        return None
    scores = [row[metric] for row in member.history]
    in_range = scores and all(0 <= score <= 100 for score in scores)
    return selection_bias(scores, examples) if in_range and examples else None
