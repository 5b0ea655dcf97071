"""The manifest of a finished run: what it was made with, and how its step was selected."""

from collections.abc import Sequence
from typing import Any

from ptrun.config.schema import Select
from ptrun.hub.repository import loaded
from ptrun.protocol.overlap import Overlaps
from ptrun.runs import manifest
from ptrun.runs.parts import Trained
from ptrun.runs.plan import Plan
from ptrun.runs.saved_prompt import fingerprint_of
from ptrun.training.selection_bias import selection_bias
from ptrun.types import Split


def facts(
    planned: Plan, trained: Sequence[Trained], split: Split, overlaps: Overlaps, seconds: float
) -> dict[str, Any]:
    """Return the manifest."""
    engine, frozen = planned.engine, not trained[0].method.tunes_backbone
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
            **manifest.samples(split),
        },
        "task_version": planned.task.version,
        "own_code": planned.own_code,
        "start": planned.start_typed,
        "started_from": planned.start.record(),
        "start_takes": planned.start.takes,
        "prompt": fingerprint_of({one.part.name: one.method for one in trained}),
        "steps": max(one.member.step for one in trained),
        "skipped_steps": max(one.member.stepper.skipped for one in trained),
        "seconds": seconds,
        "tokens_per_second": engine.speed.per_second(),
        **(_selection(planned, trained[0]) if len(trained) == 1 else {}),
        "parts": {one.part.name: _selection(planned, one) for one in trained if len(trained) > 1},
        "overlaps": overlaps.record(),
    }


def _selection(planned: Plan, one: Trained) -> dict[str, Any]:
    """Return how the reported step was selected, and from how many evaluations."""
    member, split = one.member, one.part.split
    counts = {name: len(getattr(split, name)) for name in ("train", "dev", "test")}
    return {
        "best_step": member.best_step,
        "selected_by": planned.train.select.value,
        "candidates": len(member.history),
        **({} if planned.trial is None else {"abandoned": member.abandoned}),
        "selection_bias": _selection_bias(planned, one),
        "history": member.history,
        "answered": {**counts, "left_out": one.part.left_out},
    }


def _selection_bias(planned: Plan, one: Trained) -> float | None:
    """Return the expected optimism of the best dev score, in points; None if unknown."""
    if planned.train.select is not Select.metric:
        return None
    scores = [row[planned.task.metric] for row in one.member.history]
    dev = one.part.split.dev
    in_range = scores and all(0 <= score <= 100 for score in scores)
    return selection_bias(scores, len(dev)) if in_range and dev else None
