"""The recipe: one run, from configuration to result, top to bottom."""

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ptrun import manifest, result
from ptrun.backbone.base import checksum
from ptrun.config import build, identity, schema
from ptrun.config.compose import Composed
from ptrun.errors import RunFailed, UserError
from ptrun.hardware.member import Member
from ptrun.hardware.optim import check_train
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.luck import selection_luck
from ptrun.method.base import Method, check_pair
from ptrun.prompt.pvp import check_pvps
from ptrun.protocol.base import ClaimProtocol
from ptrun.setting.base import Setting
from ptrun.store import RunStore, set_aside
from ptrun.task.base import Task
from ptrun.task.overlap import Overlaps, overlaps
from ptrun.task.source import Source
from ptrun.token_cache import encoded
from ptrun.types import RunResult, Split

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """A run that was checked and named, before anything large is read."""

    composed: Composed
    train: schema.TrainConfig
    task: Task
    protocol: ClaimProtocol
    setting: Setting
    variant: str | None
    backbone: Any
    engine: TorchEngine
    content: dict[str, Any]
    run_id: str
    folder: Path


def plan(composed: Composed) -> Plan:
    """Check a configuration and give it its name; read no weights and no examples.

    Raises:
        UserError: anything is misspelt, misfit, impossible together, or not there.
    """
    config, names = composed.config, composed.names
    build.check({group: config[group] for group in schema.GROUPS})
    train = schema.TrainConfig(
        **{**config["train"], "schedule": schema.Schedule(config["train"]["schedule"])}
    )
    check_train(train)
    setting = build.build(config["setting"])
    variant = _variant(setting, config)
    task = build.build(config["task"], config["data_dir"], variant)
    check_pair(build.target(config["method"]), names["method"], task.kind, names["task"])  # type: ignore[arg-type]
    backbone = build.build(config["backbone"])
    engine = build.build(config["hardware"], backbone)
    hardware = {**config["hardware"], "precision": engine.precision}  # `auto` as it turned out
    content = identity.affecting({**config, "hardware": hardware}, task.digest(), backbone.weights)
    run_id = identity.run_id(names, content)
    folder = Path(config["outputs"]) / config["name"] / run_id
    return Plan(
        composed=composed,
        train=train,
        task=task,
        protocol=build.build(config["protocol"]),
        setting=setting,
        variant=variant,
        backbone=backbone,
        engine=engine,
        content=content,
        run_id=run_id,
        folder=folder,
    )


def _variant(setting: Setting, config: dict[str, Any]) -> str | None:
    """Return the folder of a setting's own files, if it needs them or they are there."""
    if setting.variant is None or setting.required:
        return setting.variant
    name, origin = config["task"].get("name"), config["task"].get("source")
    if origin is None:  # the user's own files have no variants
        return None
    there = Source(name, origin, config["data_dir"], setting.variant).exists("train")
    return setting.variant if there else None


def split_of(planned: Plan) -> tuple[Split, Overlaps]:
    """Return the examples of a run, and what their parts share.

    They are what the protocol hands out, as the setting cuts it; the user's own pattern fits them.
    """
    task, data_seed = planned.task, planned.composed.config["data_seed"]
    split = planned.protocol.split(task, data_seed)
    if planned.variant:
        own = f"files of {planned.variant}"
        split = replace(split, origin={**split.origin, "train": own, "dev": own})
    split = planned.setting.choose(split, data_seed)
    if task.pvps_from:
        check_pvps(task.pvps, task.labels, split.test[0].fields, task.pvps_from)
    found = overlaps(split)
    _compare(planned, found)
    return split, found


def _compare(planned: Plan, found: Overlaps) -> None:
    """Tell what the parts share; refuse to report on what selects, unless the protocol does.

    Raises:
        UserError: dev and test are the same texts.
    """
    if "dev/test" in found.identical and planned.protocol.disjoint:
        raise UserError(
            f"task={planned.task.name}: dev and test hold the same texts, so nothing would be "
            "reported honestly;\ngive another task.dev or test, or type protocol=paper."
        )
    for pair, count in found.shared.items():
        _LOG.warning("%s: %s share %d texts", planned.task.name, pair, count)


def run(composed: Composed) -> RunResult:
    """Do one run, or return what it left if it was done before.

    Raises:
        UserError: the user can fix it; nothing is left behind.
        RunFailed: training failed; `failure.json` says why.
    """
    planned = plan(composed)
    config = composed.config
    done = None if config["rerun"] else result.read(planned.folder)
    if done is not None:
        _LOG.info("done before; rerun=true repeats it")
        return _known(done, planned.folder)
    split, shared = split_of(planned)
    torch.manual_seed(config["seed"])
    method = build.build(config["method"], planned.backbone, planned.task)
    engine = planned.engine
    if not split.train and method.learned():
        name = planned.composed.names["method"]
        raise UserError(
            f"setting={planned.composed.names['setting']} leaves nothing to learn from, but "
            f"method={name} learns; choose another setting."
        )
    if not split.dev and method.learned():
        raise UserError(
            f"task={planned.task.name} has no dev under this protocol: its authors drew one from "
            "train;\ntype setting=few_shot_32 (or another that draws dev), or protocol=honest."
        )
    planned.backbone.load(engine.weight_type(tuned=method.tunes_backbone))
    engine.place([method])
    store = _open(planned)
    started = time.monotonic()
    before = None if method.tunes_backbone else checksum(planned.backbone.model)
    member = _member(planned, method, split, store)
    _LOG.info("training in %s", planned.folder)
    engine.fit([member])
    frozen = None if before is None else before == checksum(planned.backbone.model)
    outcome = _outcome(planned, method, member)
    if member.failed is None:
        outcome = _report(planned, outcome, engine, member, split, store)
    facts = _facts(planned, engine, member, split, frozen, time.monotonic() - started)
    facts["overlaps"] = shared.record()
    store.close(replace(outcome, manifest=facts))
    return _known(replace(outcome, manifest=facts), planned.folder)


def _tokens(planned: Plan) -> Path:
    """Return the folder of tokenized examples, which runs share."""
    return Path(planned.composed.config["outputs"]) / ".tokens"


def _known(done: RunResult, folder: Path) -> RunResult:
    if done.status == "failed":
        raise RunFailed(f"{folder.name} failed: {done.reason}.\nType rerun=true to try again.")
    return done


def _open(planned: Plan) -> RunStore:
    """Make the run folder; from here on there is something to lose."""
    if planned.composed.config["rerun"]:
        set_aside(planned.folder)
    tracker = build.build(
        planned.composed.config["tracking"], planned.folder, planned.run_id, planned.content
    )
    backbone = planned.backbone
    bound = {"name": backbone.name, "revision": str(backbone.revision), "weights": backbone.weights}
    return RunStore(planned.folder, bound, tracker)


def _member(planned: Plan, method: Method, split: Split, store: RunStore) -> Member:
    return Member(
        method,
        encoded(method, split.train, _tokens(planned)),
        encoded(method, split.dev, _tokens(planned)),
        lambda answers: planned.task.score(answers, split.dev),
        planned.task.metric,
        planned.train,
        planned.composed.config["seed"],
        store,
        planned.protocol.select_best,
    )


def _outcome(planned: Plan, method: Method, member: Member) -> RunResult:
    return RunResult(
        run_id=planned.run_id,
        group=identity.group_id(planned.content),
        status="finished" if member.failed is None else "failed",
        names=planned.composed.names,
        seed=planned.composed.config["seed"],
        metric=planned.task.metric,
        learned_parameters=method.learned_parameters(),
        config=planned.content,
        reason=member.failed,
    )


def _report(
    planned: Plan,
    outcome: RunResult,
    engine: TorchEngine,
    member: Member,
    split: Split,
    store: RunStore,
) -> RunResult:
    """Put the selected prompt in place, keep it, and score the reported split once."""
    member.finish()
    store.log({"event": "selection_done", "best_step": member.best_step})
    method = member.method
    store.write_prompt(method.exported(), planned.composed.config["method"])
    answers = engine.predict([method], [encoded(method, split.test, _tokens(planned))])[0]
    test = planned.task.score(answers, split.test)
    store.write_predictions(split.test, answers)
    store.log({"event": "test", **test})
    dev = next(row for row in member.history if row["step"] == member.best_step)
    selected = {key: value for key, value in dev.items() if key != "step"}
    return replace(outcome, metrics={"dev": selected, "test": test})


def _luck(planned: Plan, member: Member, split: Split) -> float | None:
    """Return by how much the best dev score is likely to flatter, in points; None if unknown."""
    scores = [row[planned.task.metric] for row in member.history]
    known = scores and all(0 <= score <= 100 for score in scores) and split.dev
    return selection_luck(scores, len(split.dev)) if known else None


def _facts(
    planned: Plan,
    engine: TorchEngine,
    member: Member,
    split: Split,
    frozen: bool | None,
    seconds: float,
) -> dict[str, Any]:
    if frozen is False:
        raise RunFailed(f"the frozen backbone {planned.backbone.name} changed while training.")
    return {
        **manifest.software(),
        **manifest.machine(engine.device),
        "precision": engine.precision,
        "backbone": {
            "name": planned.backbone.name,
            "weights": planned.backbone.weights,
            "commit": planned.backbone.commit,
            "parameters": planned.backbone.size(),
            "frozen_verified": frozen,
        },
        "data": {"digest": planned.content["data"], **manifest.samples(split)},
        "selection_luck": _luck(planned, member, split),
        "task_version": planned.task.version,
        "steps": member.step,
        "best_step": member.best_step,
        "candidates": len(member.history),
        "history": member.history,
        "seconds": seconds,
        "tokens_per_second": engine.speed.per_second(),
    }
