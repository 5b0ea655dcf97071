"""The manifest of a finished run: what it was made with, and how its step was selected."""

from typing import Any

from ptrun.config.schema import Select
from ptrun.hub.repository import loaded
from ptrun.runs import manifest
from ptrun.runs.execution import Execution
from ptrun.runs.parts import Part
from ptrun.runs.plan import Plan
from ptrun.runs.saved_prompt import fingerprint_of
from ptrun.training.selection_bias import selection_bias


def facts(done: Execution, seconds: float) -> dict[str, Any]:
    """Return the manifest of a trained run."""
    planned, parts = done.planned, done.parts
    engine, frozen = planned.engine, not done.tuned
    return {
        **manifest.software(),
        **manifest.machine(engine.device),
        **manifest.computation(engine),
        "backbone": manifest.weights(
            planned.backbone, planned.backbone_path, seed=planned.seed, frozen=frozen
        ),
        "data": {
            "digest": planned.content["data"],
            "commits": loaded(planned.task.repositories),
            **manifest.samples(done.split),
            "rows": {name: own.record() for name, own in planned.task.accounts.items()},
        },
        "task_version": planned.task.version,
        "own_code": planned.own_code,
        "start": planned.start_typed,
        "started_from": planned.start.record(),
        "start_takes": planned.start.takes,
        "prompt": fingerprint_of({part.name: part.method for part in parts}),
        "steps": max(part.member.step for part in parts),
        "skipped_steps": max(part.member.stepper.skipped for part in parts),
        "seconds": seconds,
        "tokens_per_second": engine.speed.per_second(),
        **(_selection(planned, parts[0]) if len(parts) == 1 else {}),
        "parts": {part.name: _selection(planned, part) for part in parts if len(parts) > 1},
        "overlaps": done.overlaps.record(),
    }


def _selection(planned: Plan, part: Part) -> dict[str, Any]:
    """Return how the reported step was selected, and from how many evaluations."""
    member, split = part.member, part.split
    counts = {name: len(getattr(split, name)) for name in ("train", "dev", "test")}
    return {
        "best_step": member.best_step,
        "selected_by": planned.train.select.value,
        "candidates": len(member.history),
        **({} if planned.trial is None else {"abandoned": member.abandoned}),
        "selection_bias": _selection_bias(planned, part),
        "history": member.history,
        "answered": {**counts, "left_out": part.left_out},
    }


def _selection_bias(planned: Plan, part: Part) -> float | None:
    """Return the expected optimism of the best dev score, in points; None if unknown."""
    if planned.train.select is not Select.metric:
        return None
    scores = [row[planned.task.metric] for row in part.member.history]
    dev = part.split.dev
    in_range = scores and all(0 <= score <= 100 for score in scores)
    return selection_bias(scores, len(dev)) if in_range and dev else None
