"""The recipe: one run, from configuration to result, top to bottom."""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from ptrun.backbone.base import checksum
from ptrun.config import identity
from ptrun.errors import RunFailed, UserError
from ptrun.method.base import Method
from ptrun.readout.base import Features
from ptrun.run import result
from ptrun.run.begin import begin
from ptrun.run.facts import facts
from ptrun.run.finished import found_by
from ptrun.run.parts import Part, Trained, divide
from ptrun.run.plan import Plan, split_of
from ptrun.run.prerequisite import with_prerequisite
from ptrun.run.shared_store import SharedStore
from ptrun.run.store import RunStore, bound_to, set_aside
from ptrun.run.token_cache import TOKENS, encoded
from ptrun.tracking.none import NoTracker
from ptrun.training.member import Member, check_select
from ptrun.types import Example, Prediction, RunResult, Split

_LOG = logging.getLogger(__name__)
_TrainDev = tuple[Sequence[Features], Sequence[Features]]


def run(planned: Plan) -> RunResult:
    """Do one run, or return its result if it is finished.

    Raises:
        UserError: the user can fix it; nothing is left behind.
        RunFailed: training failed; `failure.json` has the reason.
    """
    engine, world = planned.engine, planned.engine.connect()
    done = world.broadcast(None if planned.rerun else result.read(planned.folder))
    if done is not None:
        _LOG.info("already finished; rerun=true repeats it")
        return checked_result(done, planned.folder)

    with world.main_first():  # the first rank labels lines that the others read
        split, overlaps = split_of(planned)
    parts = divide(planned.build_method(), split)
    methods = [planned.build_method() for _ in parts]
    _check_examples(planned, methods[0], split)
    planned = with_prerequisite(planned, methods[0], run)

    tuned = methods[0].tunes_backbone
    engine.load(tuned=tuned)
    engine.place(methods)
    _begin(planned, parts, methods)
    features = [_features(planned, m, part) for m, part in zip(methods, parts, strict=True)]

    store = _open_folder(planned, tuned=tuned)
    started = time.monotonic()
    trained = [
        Trained(part, _member(planned, method, part, rows, store))
        for part, method, rows in zip(parts, methods, features, strict=True)
    ]
    _train(planned, trained, tuned=tuned)
    outcome = _outcome(planned, trained)
    if outcome.status == "finished":
        outcome = _report(planned, outcome, trained, store)

    seconds = time.monotonic() - started
    outcome = replace(outcome, manifest=facts(planned, trained, split, overlaps, seconds))
    store.close(outcome)
    return checked_result(outcome, planned.folder)


def checked_result(done: RunResult, folder: Path) -> RunResult:
    """Return the result of a run folder.

    Raises:
        RunFailed: the run failed.
    """
    if done.status == "failed":
        raise RunFailed(f"{folder.name} failed: {done.reason}.\nType rerun=true to try again.")
    return done


def _check_examples(planned: Plan, method: Method, split: Split) -> None:
    """Refuse to train without train or dev examples, or without what dev selects by.

    Raises:
        UserError: the setting or the protocol gives none.
    """
    check_select(planned.train, method)
    names = planned.names
    if method.learned() and not split.train:
        raise UserError(
            f"setting={names['setting']} has no training examples, but method={names['method']} "
            "is trained. Choose another setting."
        )
    if method.learned() and not split.dev:
        raise UserError(
            f"task={planned.task.name} has no dev examples under protocol={names['protocol']}: "
            "its authors took them from train.\nType setting=few_shot_32 or another setting with "
            "a dev split, or protocol=honest."
        )


def _begin(planned: Plan, parts: Sequence[Part], methods: Sequence[Method]) -> None:
    """Initialize the prompts as `start=` says."""
    splits = {part.name: part.split for part in parts}

    def rows(method: Method, part: str) -> Iterable[Features]:
        examples = (splits[part].train, splits[part].dev)
        return chain.from_iterable(_encoded(planned, method, own) for own in examples)

    by_part = dict(zip(splits, methods, strict=True))
    begin(planned.start, by_part, bound_to(planned.backbone), planned.seed, rows)


def _encoded(planned: Plan, method: Method, examples: Sequence[Example]) -> Sequence[Features]:
    """Return examples as a method reads them; the token cache is shared between runs."""
    return encoded(method, examples, planned.outputs / TOKENS)


def _features(planned: Plan, method: Method, part: Part) -> _TrainDev:
    """Return the encoded train and dev examples; test is encoded too, to raise its errors now."""
    test, train, dev = part.split.test, part.split.train, part.split.dev
    _encoded(planned, method, test)
    return _encoded(planned, method, train), _encoded(planned, method, dev)


def _open_folder(planned: Plan, *, tuned: bool) -> SharedStore:
    """Create the run folder; an error before this leaves nothing behind."""
    world = planned.engine.world
    if planned.rerun and world.main:
        set_aside(planned.folder)
    world.wait()
    identified = (planned.folder, planned.run_id, planned.content)
    tracker = planned.tracking.build(*identified) if world.main else NoTracker(*identified)
    run_store = RunStore(planned.folder, bound_to(planned.backbone), tracker)
    store = SharedStore(run_store, world, tuned=tuned)
    store.write_request(planned.request)
    return store


def _member(
    planned: Plan,
    method: Method,
    part: Part,
    features: _TrainDev,
    store: SharedStore,
) -> Member:
    task, dev = planned.task, part.split.dev
    return Member(
        method,
        features[0],
        features[1],
        lambda predictions: task.score(predictions, dev),
        task.metric,
        planned.train,
        planned.seed,
        store.part(part.name),
        planned.protocol.select_best,
    )


def _train(planned: Plan, trained: Sequence[Trained], *, tuned: bool) -> None:
    """Train all members together.

    Raises:
        RunFailed: a weight of the frozen backbone changed.
    """
    before = None if tuned else checksum(planned.backbone.model)
    _LOG.info("training in %s", planned.folder)
    planned.engine.fit([one.member for one in trained])
    if before is not None and before != checksum(planned.backbone.model):
        raise RunFailed(f"the frozen backbone {planned.backbone.name} changed while training.")


def _outcome(planned: Plan, trained: Sequence[Trained]) -> RunResult:
    """Return the result without its metrics and manifest."""
    reasons = [one.member.failed for one in trained if one.member.failed]
    counts = [one.method.learned_parameters() for one in trained]
    return RunResult(
        run_id=planned.run_id,
        group=identity.group_id(planned.content),
        status="failed" if reasons else "finished",
        names=planned.names,
        seed=planned.seed,
        metric=planned.task.metric,
        learned_parameters={key: sum(count[key] for count in counts) for key in counts[0]},
        config=planned.content,
        reason=reasons[0] if reasons else None,
    )


def _report(
    planned: Plan, outcome: RunResult, trained: Sequence[Trained], store: SharedStore
) -> RunResult:
    """Restore and save the selected prompts, and score the test split once."""
    for one in trained:
        one.member.finish()
    store.log({"event": "selection_done", "best_step": trained[0].member.best_step})
    prompts = {
        one.part.prefix + name: tensor
        for one in trained
        for name, tensor in planned.engine.whole(one.method).items()
    }
    store.write_prompt(prompts, planned.method.node, found_by(planned.task))
    dev = _dev_metrics(planned, trained)
    examples, predictions = _predict(planned, trained, "test")
    test = planned.task.score(predictions, examples)
    store.write_predictions(examples, predictions)
    store.log({"event": "test", **test})
    return replace(outcome, metrics={"dev": dev, "test": test})


def _predict(
    planned: Plan, trained: Sequence[Trained], name: str
) -> tuple[list[Example], list[Prediction]]:
    """Return the dev or test examples of all parts, and their predictions."""
    by_part = [getattr(one.part.split, name) for one in trained]
    methods = [one.method for one in trained]
    features = [_encoded(planned, m, own) for m, own in zip(methods, by_part, strict=True)]
    predicted = planned.engine.predict(methods, features)
    return [e for own in by_part for e in own], [p for own in predicted for p in own]


def _dev_metrics(planned: Plan, trained: Sequence[Trained]) -> dict[str, float]:
    """Return the selected evaluation; the selected prompts of several parts are scored as one."""
    if len(trained) > 1:
        examples, predictions = _predict(planned, trained, "dev")
        return planned.task.score(predictions, examples)
    member = trained[0].member
    selected = [row for row in member.history if row["step"] == member.best_step]
    return {key: value for row in selected[-1:] for key, value in row.items() if key != "step"}
