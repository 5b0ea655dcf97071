"""The recipe: runs from configuration to result, top to bottom.

Runs of a group share the passes of one frozen backbone. Each leaves what it would leave alone.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from ptrun.backbone.base import checksum
from ptrun.config.schema import Keep
from ptrun.errors import RunFailed, UserError
from ptrun.files import below
from ptrun.folder import request, result
from ptrun.folder.store import bound_to, set_aside
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.hub.repository import agree, loaded, warn_of_moved
from ptrun.method.base import Method
from ptrun.method.tokenized import TOKENS, tokenized
from ptrun.metrics import by_label
from ptrun.readout.base import Features
from ptrun.runs.examples import Part, divide, split_of, tokens_added
from ptrun.runs.longer import take_over
from ptrun.runs.manifest import facts
from ptrun.runs.plan import Plan
from ptrun.runs.record import Ended, Execution
from ptrun.runs.shared_store import SharedStore
from ptrun.start.saved_prompt import fingerprint
from ptrun.start.spec import CONTINUE
from ptrun.start.start import begin
from ptrun.task.protocol import Overlaps, unseen
from ptrun.tracking.trackers import Trackers
from ptrun.training.health import doubts, near_chance
from ptrun.training.member import Member, check_select
from ptrun.types import Example, Prediction, RunResult, Split

_LOG = logging.getLogger(__name__)


_TrainDev = tuple[Sequence[Features], Sequence[Features]]


def run(planned: Plan) -> RunResult:
    """Do one run, or return its result if it is finished."""
    (ended,) = together([planned])
    return raised(ended)


def raised(ended: Ended) -> RunResult:
    """Return a result, or raise the error that ended the run."""
    if isinstance(ended, Exception):
        raise ended
    return ended


def together(plans: Sequence[Plan]) -> list[Ended]:
    """Do runs that share the first one's backbone and engine; return a result or error of each."""
    backbone, engine = plans[0].backbone, plans[0].engine
    shared: dict[Any, Any] = {}
    tasks = [shared.setdefault(_rows_of(planned), planned.task) for planned in plans]
    works = [
        Execution(replace(planned, backbone=backbone, engine=engine, task=task), shared=shared)
        for planned, task in zip(plans, tasks, strict=True)
    ]
    engine.connect()
    left = _each(_each(works, _find), _prepare)
    if left:
        engine.load(tuned=left[0].tuned)
        for work in left:
            if work.planned.texts and work.planned.request.trial is None:
                work.losses["base"] = _base_loss(work, engine)
        engine.place([method for work in left for method in work.methods])
        left = _each(left, _open)
    for warning in dict.fromkeys(text for work in left for text in work.warnings):
        _LOG.warning("%s", warning)
    if left:
        _do(left, engine)
    return [work.ended for work in works if work.ended is not None]


def _each(works: Iterable[Execution], stage: Callable[[Execution], None]) -> list[Execution]:
    """Call a stage with each run; return those that go on. An error ends its own run only."""
    left = [work for work in works if work.ended is None]
    for work in left:
        try:
            stage(work)
        except (UserError, RunFailed) as error:
            work.ended = error
    return [work for work in left if work.ended is None]


# Is it finished?


def _find(work: Execution) -> None:
    """Read the result of a run that has ended."""
    work.ended = work.planned.engine.world.broadcast(found(work.planned))


def found(planned: Plan) -> Ended | None:
    """Return how a run has ended; None if it is to be done."""
    done = None if planned.rerun else result.read_named(planned.folder)
    if done is None:
        return None
    _LOG.info("already finished; rerun=true repeats it")
    return checked(done, planned.folder)


def checked(done: RunResult, folder: Path) -> RunResult | RunFailed:
    """Return the result of a run folder, or the error of a failed run."""
    if done.status == "failed":
        return RunFailed(
            f"{folder.name} failed: {done.reason}.\n"
            "Try a lower train.lr; rerun=true repeats the run as it was."
        )
    return done


def _base_loss(work: Execution, engine: TorchEngine) -> float:
    """Return the loss of the texts of `forgetting`; runs of a group measure it once."""
    from ptrun.runs.forgetting import loss_without  # a run without texts does not need it

    key = ("base", work.planned.texts)
    if key not in work.shared:
        work.shared[key] = loss_without(work.methods[0], work.planned.texts, engine)
    loss: float = work.shared[key]
    return loss


# Prepare: read the examples, divide them and build the methods.


def _prepare(work: Execution) -> None:
    """Read the examples, divide them and build the methods."""
    planned, world = work.planned, work.planned.engine.world
    if world.size > 1:
        agree(planned.repositories, world.broadcast, main=world.main)
    with world.main_first():  # the first rank labels lines that the others read
        work.split, work.overlaps = _split(work)
    method = planned.build_method()
    work.parts = divide(method, work.split)
    if planned.request.trial is not None:
        work.parts = [replace(part, split=replace(part.split, test=[])) for part in work.parts]
    for part in work.parts:
        part.method = method if len(work.parts) == 1 else planned.build_method()
        part.method.readout.weigh(part.split.train)
    _check_examples(planned, method, work.split)


def _split(work: Execution) -> tuple[Split, Overlaps]:
    """Return the examples of a run; runs of a group with the same draw have the same."""
    planned = work.planned
    draw = [planned.content.get(key) for key in ("protocol", "setting", "data_seed")]
    key = json.dumps([_rows_of(planned), draw, planned.train.eval_rows], default=str)
    if key not in work.shared:
        work.shared[key] = split_of(planned)
    sampled: tuple[Split, Overlaps] = work.shared[key]
    return sampled


def _rows_of(planned: Plan) -> str:
    """Return what the rows of a task depend on, before a setting draws from them."""
    content = {key: planned.content.get(key) for key in ("task", "data")}
    return json.dumps(
        [content, planned.variant, planned.names["task"]], sort_keys=True, default=str
    )


def _check_examples(planned: Plan, method: Method, split: Split) -> None:
    """Refuse to train without train or dev examples, or without what dev selects by."""
    check_select(planned.train, method)
    names = planned.names
    if method.learned() and not (split.train or method.readout.studies):
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


# Open: initialize the prompts, encode the examples, and create the run folder.


def _open(work: Execution) -> None:
    """Initialize the prompts, encode the examples and open the folder.

    An error before the folder is opened leaves nothing behind.
    """
    planned, world = work.planned, work.planned.engine.world
    for part in work.parts:
        readout = part.method.readout
        readout.store = below(planned.request.outputs, TOKENS)
        if readout.studies:  # the backbone writes the training examples
            with world.main_first() if world.model_parallel == 1 else nullcontext():
                part.split = replace(part.split, train=readout.study())
            origin = {**work.split.origin, "train": "self-study"}
            work.split = replace(work.split, train=part.split.train, origin=origin)
    _begin(work)
    features = []
    for part in work.parts:
        _tokens(work, part.method, part.split.test)  # encoded to raise its errors now
        train = _tokens(work, part.method, part.split.train)
        features.append((train, _tokens(work, part.method, part.split.dev)))
    rate, usual = planned.train.lr, planned.usual_rates
    work.warnings = [
        *doubts(work.parts[0].method, features[0][0], rate, usual),
        *work.overlaps.warnings,
        *unseen(planned.task, work.split),
        *planned.start.told,
    ]
    work.store = _open_folder(planned, tuned=work.tuned)
    if work.parts[0].method.readout.studies:
        work.store.write_study(work.split.train)
    for part, rows in zip(work.parts, features, strict=True):
        part.member = _member(planned, part, rows, work.store)
        part.member.health.compares = len(work.parts) == 1


def _begin(work: Execution) -> None:
    """Initialize the prompts as `start=` says."""
    planned, splits = work.planned, {part.name: part.split for part in work.parts}

    def rows(method: Method, part: str) -> Iterable[Features]:
        examples = (splits[part].train, splits[part].dev)
        return chain.from_iterable(_tokens(work, method, rows) for rows in examples)

    by_part = {part.name: part.method for part in work.parts}
    train = {part.name: part.split.train for part in work.parts}
    start, bound = planned.start, bound_to(planned.backbone)
    if planned.needs and start.folder:
        start = replace(start, digest=fingerprint(start.folder, bound))
        _LOG.info("the prompt starts from %s", start.folder)
    begin(start, by_part, bound, planned.seed, rows, train)
    if start.kind == CONTINUE:
        take_over(start, by_part, bound)
    work.started_from = start.record()


def _tokens(work: Execution, method: Method, examples: Sequence[Example]) -> Sequence[Features]:
    """Return encoded examples; runs of a group that read the same ones alike have the same."""
    node = json.dumps(work.planned.readout.node, sort_keys=True, default=str)
    key = (id(examples), type(method), node, method.room(), str(method.readout.texts_before))
    if key not in work.shared:  # the examples are kept, so that no others get their id
        work.shared[key] = examples, tokenized(method, examples)
    features: Sequence[Features] = work.shared[key][1]
    return features


def _open_folder(planned: Plan, *, tuned: bool) -> SharedStore:
    """Create the run folder."""
    world = planned.engine.world
    if planned.rerun and world.main:
        set_aside(planned.folder)
    world.wait()
    identified = (planned.folder, planned.run_id, planned.content)
    tracker = planned.tracking.build(*identified) if world.main else Trackers(*identified)
    bound = bound_to(planned.backbone)
    store = SharedStore(planned.folder, bound, tracker, world=world, tuned=tuned)
    if world.main:
        store.clean()
        first = planned.start.folder
        if first and planned.start.steps and not (planned.folder / request.FILE).is_file():
            store.follow(first)
        warn_of_moved(planned.repositories)
        commits = loaded(planned.repositories)
        request.write(planned.folder, replace(planned.request, commits=commits))
    return store


def _member(planned: Plan, part: Part, features: _TrainDev, store: SharedStore) -> Member:
    task, dev, readout = planned.task, part.split.dev, part.method.readout
    return Member(
        part.method,
        features[0],
        features[1],
        lambda predictions: task.score(readout.settle(predictions, dev), dev),
        task.metric,
        planned.train,
        planned.seed,
        store.part(part.name),
        planned.protocol.select_best,
        planned.request.trial or {},
    )


# Fit: train all members together, then report, write and close each run.


def _do(works: Sequence[Execution], engine: TorchEngine) -> None:
    """Train, report and close runs."""
    started = time.monotonic()
    try:
        _train(works, engine)
        _report(works)
    except BaseException:
        for work in works:
            work.store.tracker.finish(None)
        raise
    seconds = time.monotonic() - started
    ids = [work.planned.run_id for work in works]
    tokens = [sum(part.member.tokens for part in work.parts) for work in works]
    for work, count in zip(works, tokens, strict=True):
        # a run took the part of the group's time that its tokens are of the group's tokens
        share = count / sum(tokens) if sum(tokens) else 1 / len(works)
        earlier = sum(part.member.earlier for part in work.parts)
        manifest = facts(work, earlier + seconds * share)
        member, task, signs = work.parts[0].member, work.planned.task, list[str]()
        if member.total and len(work.parts) == 1:  # signs that it did not learn
            signs = member.health.findings(member.step)
            if not signs and task.answer == "label" and task.metric == "accuracy":
                signs = near_chance(work.parts[0].split.dev, member.best_value, member.step)
        manifest["warnings"] = [*work.warnings, *signs]
        manifest["shared_with"] = [other for other in ids if other != work.planned.run_id]
        outcome = _outcome(work, manifest)
        keep = work.planned.request.keep
        work.store.close(outcome, keep_state=keep in (Keep.state, Keep.all))
        work.ended = checked(outcome, work.planned.folder)


def _train(works: Sequence[Execution], engine: TorchEngine) -> None:
    """Train all members together."""
    model = engine.backbone.model
    before = None if works[0].tuned else checksum(model)
    for work in works:
        doing = "training" if work.parts[0].method.learned() else "predicting"
        _LOG.info("%s in %s", doing, work.planned.folder)
    if works[0].tuned and not works[0].planned.request.keep.has_weights:
        _LOG.info("afterwards: no ptrun predict, no export: keep=weights keeps the tuned model")
    else:
        _LOG.info("afterwards: ptrun predict; ptrun check says whether ptrun export can write it")
    members = [part.member for work in works for part in work.parts]
    for member in members:
        member.group = [work.planned.run_id for work in works]
    engine.fit(members)
    if before is not None and before != checksum(model):
        raise RunFailed(f"the frozen backbone {engine.backbone.name} changed while training.")


def _outcome(work: Execution, manifest: Mapping[str, Any]) -> RunResult:
    planned, counts = work.planned, [part.method.learned_parameters() for part in work.parts]
    return RunResult(
        run_id=planned.run_id,
        group=planned.group,
        status="failed" if work.failed else "finished",
        names=planned.names,
        seed=planned.seed,
        metric=planned.task.metric,
        metrics=work.metrics,
        by_label=work.by_label,
        learned_parameters={key: sum(count[key] for count in counts) for key in counts[0]},
        manifest=manifest,
        config=planned.content,
        reason=work.failed,
    )


# Report: the selected prompts are saved, and test is scored once.


def _report(works: Sequence[Execution]) -> None:
    """Restore and save the selected prompts, and score test once; a trial of a search does not."""
    done = [work for work in works if not work.failed]
    for work in done:
        _save_selected(work)
    dev = [_dev_metrics(work) for work in done]
    tests = _predict(done, "test")
    for work, dev_scores, (examples, predictions) in zip(done, dev, tests, strict=True):
        work.metrics = {"dev": dev_scores, "test": {}}
        if work.planned.request.trial is not None:
            continue
        part = work.parts[0]
        features = _tokens(work, part.method, part.split.test)
        work.added = tokens_added(part.method, part.split.test, features)
        if work.losses:
            from ptrun.runs.forgetting import loss_with

            losses = [loss_with(m, work.planned.texts, work.planned.engine) for m in work.methods]
            work.losses["loss"] = fmean(losses)
        task, golds = work.planned.task, [example.target for example in examples]
        work.metrics["test"] = task.score(predictions, examples)
        work.by_label = by_label(task.answer, [p.value for p in predictions], golds)
        work.store.write_predictions(examples, predictions)
        work.store.log({"event": "test", **work.metrics["test"]})


def _save_selected(work: Execution) -> None:
    """Load the selected tensors into the methods, and write them; a tuned model only if asked."""
    for part in work.parts:
        part.member.finish()
        if part.method.readout.settles and part.split.dev:
            rows = _tokens(work, part.method, part.split.dev)
            (answers,) = work.planned.engine.predict([part.method], [rows])
            part.method.readout.settle(answers, part.split.dev)
    work.store.log({"event": "selection_done", "best_step": work.parts[0].member.best_step})
    if work.tuned and not work.planned.request.keep.has_weights:
        return
    prompts = {
        part.prefix + name: tensor
        for part in work.parts
        for name, tensor in work.planned.engine.whole(part.method).items()
    }
    work.store.write_prompt(prompts, work.planned.method.node, work.planned.task.recorded())


def _predict(works: Sequence[Execution], name: str) -> list[tuple[list[Example], list[Prediction]]]:
    """Return the dev or test examples of each run, of all its parts, and their predictions."""
    both = [(work, part) for work in works for part in work.parts]
    examples = [getattr(part.split, name) for _, part in both]
    methods = [part.method for _, part in both]
    features = [
        _tokens(work, part.method, rows) for (work, part), rows in zip(both, examples, strict=True)
    ]
    if not works:
        return []
    predicted = iter(works[0].planned.engine.predict(methods, features, probabilities=False))
    rows = iter(examples)
    return [
        (
            [example for _ in work.parts for example in next(rows)],
            [prediction for _ in work.parts for prediction in next(predicted)],
        )
        for work in works
    ]


def _dev_metrics(work: Execution) -> dict[str, float]:
    """Return the selected evaluation; the selected prompts of several parts are scored as one."""
    if len(work.parts) > 1:
        ((examples, predictions),) = _predict([work], "dev")
        return work.planned.task.score(predictions, examples)
    member = work.parts[0].member
    selected = [row for row in member.history if row["step"] == member.best_step]
    metrics = {key: value for row in selected[-1:] for key, value in row.items() if key != "step"}
    if member.method.readout.writes and work.planned.task.metric not in metrics:
        ((examples, predictions),) = _predict([work], "dev")  # the loss selected
        metrics |= work.planned.task.score(predictions, examples)
    return metrics
