"""The recipe: one run, from configuration to result, top to bottom."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptrun.backbone.base import checksum
from ptrun.config import identity
from ptrun.errors import RunFailed, UserError
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.run import manifest, result
from ptrun.run.begin import begin
from ptrun.run.finished import found_by
from ptrun.run.parts import Part, divide
from ptrun.run.plan import Plan, split_of
from ptrun.run.prerequisite import with_prerequisite
from ptrun.run.saved_prompt import fingerprint_of
from ptrun.run.shared_store import SharedStore
from ptrun.run.store import RunStore, bound_to, set_aside
from ptrun.run.token_cache import encoded
from ptrun.tracking.none import NoTracker
from ptrun.training.member import Member
from ptrun.training.selection_bias import selection_luck
from ptrun.types import Prediction, RunResult, Split

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Trained:
    """One part of a run and who learned it."""

    part: Part
    member: Member

    @property
    def method(self) -> Method:
        """The method that was trained."""
        return self.member.method


def run(planned: Plan) -> RunResult:
    """Do one run, or return its result if it is finished.

    Raises:
        UserError: the user can fix it; nothing is left behind.
        RunFailed: training failed; `failure.json` has the reason.
    """
    world = planned.engine.connect()
    done = world.told(None if planned.rerun else result.read(planned.folder))
    if done is not None:
        _LOG.info("already finished; rerun=true repeats it")
        return checked_result(done, planned.folder)
    with world.main_first():  # the others find the lines that it labels
        split, shared = split_of(planned)
    parts = divide(planned.build_method(), split)
    methods = [planned.build_method() for _ in parts]
    _check_learns(planned, methods[0], split)
    planned = with_prerequisite(planned, methods[0], run)
    tuned, engine = methods[0].tunes_backbone, planned.engine
    engine.load(tuned=tuned)
    engine.place(methods)
    _begin(planned, parts, methods)
    rows = [_rows(planned, method, part) for method, part in zip(methods, parts, strict=True)]
    store = _open(planned, tuned=tuned)
    store.write_request(planned.request)
    started = time.monotonic()
    before = None if tuned else checksum(planned.backbone.model)
    trained = [
        Trained(part, _member(planned, method, part, own, store))
        for part, method, own in zip(parts, methods, rows, strict=True)
    ]
    _LOG.info("training in %s", planned.folder)
    engine.fit([one.member for one in trained])
    if before is not None and before != checksum(planned.backbone.model):
        raise RunFailed(f"the frozen backbone {planned.backbone.name} changed while training.")
    outcome = _outcome(planned, trained)
    if outcome.status == "finished":
        outcome = _report(planned, outcome, trained, store)
    facts = _facts(planned, trained, split, time.monotonic() - started)
    facts["overlaps"] = shared.record()
    facts["backbone"]["frozen_verified"] = None if tuned else True
    store.close(replace(outcome, manifest=facts))
    return checked_result(replace(outcome, manifest=facts), planned.folder)


def _begin(planned: Plan, parts: Sequence[Part], methods: Sequence[Method]) -> None:
    """Put every prompt where it begins."""
    splits = {part.name: part.split for part in parts}

    def rows(method: Method, part: str) -> list[Features]:
        own = splits[part]
        return [f for es in (own.train, own.dev) for f in encoded(method, es, _tokens(planned))]

    named = dict(zip(splits, methods, strict=True))
    begin(planned.start, named, bound_to(planned.backbone), planned.seed, rows)


def _check_learns(planned: Plan, method: Method, split: Split) -> None:
    """Refuse to learn without train or dev.

    Raises:
        UserError: the setting or the protocol gives none.
    """
    names = planned.names
    if method.learned() and not split.train:
        raise UserError(
            f"setting={names['setting']} leaves nothing to learn from, but "
            f"method={names['method']} learns; choose another setting."
        )
    if method.learned() and not split.dev:
        raise UserError(
            f"task={planned.task.name} has no dev under this protocol: its authors drew one from "
            "train;\ntype setting=few_shot_32 (or another that draws dev), or protocol=honest."
        )


def _tokens(planned: Plan) -> Path:
    """Return the folder of tokenized examples, which runs share."""
    return planned.outputs / ".tokens"


def checked_result(done: RunResult, folder: Path) -> RunResult:
    """Return a result that a folder holds.

    Raises:
        RunFailed: it tells of a failure.
    """
    if done.status == "failed":
        raise RunFailed(f"{folder.name} failed: {done.reason}.\nType rerun=true to try again.")
    return done


def _open(planned: Plan, *, tuned: bool) -> SharedStore:
    """Make the run folder; from here on there is something to lose."""
    world = planned.engine.world
    if planned.rerun and world.main:
        set_aside(planned.folder)
    world.wait()
    told = (planned.folder, planned.run_id, planned.content)
    tracker = planned.tracking.build(*told) if world.main else NoTracker(*told)
    store = RunStore(planned.folder, bound_to(planned.backbone), tracker)
    return SharedStore(store, world, tuned=tuned)


def _rows(planned: Plan, method: Method, part: Part) -> tuple[list[Features], list[Features]]:
    """Return what train and dev read; test is read too, so that all it lacks is said by now."""
    split = part.split
    _, train, dev = (
        encoded(method, es, _tokens(planned)) for es in (split.test, split.train, split.dev)
    )
    return train, dev


def _member(
    planned: Plan,
    method: Method,
    part: Part,
    rows: tuple[list[Features], list[Features]],
    store: SharedStore,
) -> Member:
    task, dev = planned.task, part.split.dev
    return Member(
        method,
        *rows,
        lambda answers: task.score(answers, dev),
        task.metric,
        planned.train,
        planned.seed,
        store.part(part.name),
        planned.protocol.select_best,
    )


def _outcome(planned: Plan, trained: Sequence[Trained]) -> RunResult:
    reasons = [one.member.failed for one in trained if one.member.failed]
    counts = [one.method.learned_parameters() for one in trained]
    return RunResult(
        run_id=planned.run_id,
        group=identity.group_id(planned.content),
        status="failed" if reasons else "finished",
        names=planned.names,
        seed=planned.seed,
        metric=planned.task.metric,
        learned_parameters={key: sum(own[key] for own in counts) for key in counts[0]},
        config=planned.content,
        reason=reasons[0] if reasons else None,
    )


def _report(
    planned: Plan, outcome: RunResult, trained: Sequence[Trained], store: SharedStore
) -> RunResult:
    """Put the selected prompts in place, keep them, and score the reported split once."""
    for one in trained:
        one.member.finish()
    store.log({"event": "selection_done", "best_step": trained[0].member.best_step})
    parts = [(one.part.prefix, planned.engine.whole(one.method)) for one in trained]
    prompts = {start + name: tensor for start, own in parts for name, tensor in own.items()}
    store.write_prompt(prompts, planned.method.node, found_by(planned.task))
    dev = _answers(planned, trained, "dev") if len(trained) > 1 else []
    answers = _answers(planned, trained, "test")
    examples = [e for one in trained for e in one.part.split.test]
    test = planned.task.score(answers, examples)
    store.write_predictions(examples, answers)
    store.log({"event": "test", **test})
    return replace(outcome, metrics={"dev": _dev(planned, trained, dev), "test": test})


def _answers(planned: Plan, trained: Sequence[Trained], name: str) -> list[Prediction]:
    """Return the answers to a part of the split, part by part of the run."""
    wanted = [getattr(one.part.split, name) for one in trained]
    methods = [one.method for one in trained]
    features = [encoded(m, own, _tokens(planned)) for m, own in zip(methods, wanted, strict=True)]
    return [a for own in planned.engine.predict(methods, features) for a in own]


def _dev(
    planned: Plan, trained: Sequence[Trained], answers: Sequence[Prediction]
) -> dict[str, float]:
    """Return the selected evaluation; over several parts, their selected answers scored as one."""
    if len(trained) > 1:
        examples = [e for one in trained for e in one.part.split.dev]
        return planned.task.score(answers, examples)
    member = trained[0].member
    found = [row for row in member.history if row["step"] == member.best_step]
    return {key: value for key, value in (found[-1] if found else {}).items() if key != "step"}


def _luck(planned: Plan, one: Trained) -> float | None:
    """Return by how much the best dev score is likely to flatter, in points; None if unknown."""
    scores = [row[planned.task.metric] for row in one.member.history]
    dev = one.part.split.dev
    known = scores and all(0 <= score <= 100 for score in scores) and dev
    return selection_luck(scores, len(dev)) if known else None


def _facts(
    planned: Plan, trained: Sequence[Trained], split: Split, seconds: float
) -> dict[str, Any]:
    engine, backbone = planned.engine, planned.backbone
    path = planned.backbone_path
    return {
        **manifest.software(),
        **manifest.machine(engine.device),
        "precision": engine.precision,
        "ranks": engine.world.size,
        "model_parallel": engine.world.model_parallel,
        "token_budget": engine.token_budget,
        "backbone": {
            "name": backbone.name,
            "weights": backbone.weights,
            "commit": backbone.commit,
            "path": path and str(Path(path).resolve()),
            "parameters": backbone.size(),
        },
        "data": {"digest": planned.content["data"], **manifest.samples(split)},
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
    }


def _selection(planned: Plan, one: Trained) -> dict[str, Any]:
    """Return how the reported step was chosen, and from how many."""
    member, split = one.member, one.part.split
    counts = {name: len(getattr(split, name)) for name in ("train", "dev", "test")}
    return {
        "best_step": member.best_step,
        "candidates": len(member.history),
        "selection_luck": _luck(planned, one),
        "history": member.history,
        "answered": {**counts, "left_out": one.part.left_out},
    }
