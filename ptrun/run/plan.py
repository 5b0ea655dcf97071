"""What a run is, before it runs: checked, named, and its examples at hand."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ptrun.config import build, identity, schema
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import check_pair
from ptrun.prompt.pvp import check_pvps
from ptrun.protocol.base import ClaimProtocol
from ptrun.run import result
from ptrun.run.labelling import label, settled
from ptrun.run.pretraining import as_typed, composed_for, made, of_corpus
from ptrun.run.starting import plan_start
from ptrun.run.store import bound_to
from ptrun.setting.base import Setting
from ptrun.start.spec import Start
from ptrun.task.base import Task
from ptrun.task.overlap import Overlaps, overlaps
from ptrun.task.source import Source
from ptrun.training.optim import check_train
from ptrun.types import Split

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
    start: Start
    pretraining: "Plan | None"
    """The run whose prompt this one begins as, where `start` asks for one."""
    content: dict[str, Any]
    run_id: str
    folder: Path


def plan(composed: Composed, engine: Callable[..., Any] = build.build) -> Plan:
    """Check a configuration and give it its name; read no weights and no examples.

    `engine` makes the engine of its configuration and the backbone: `ptrun plan` names runs of
    other machines, whose devices are not here.

    Raises:
        UserError: anything is misspelt, misfit, impossible together, or not there.
    """
    build.check({group: composed.config[group] for group in schema.GROUPS})
    composed = settled(composed)
    config, names = composed.config, composed.names
    train = schema.train_config(config["train"])
    check_train(train)
    setting = build.build(config["setting"])
    variant = _variant(setting, config)
    task = build.build(config["task"], config["data_dir"], variant)
    backbone = build.build(config["backbone"])
    method: Any = build.target(config["method"])
    check_pair(method, config["method"], backbone, task)
    start = plan_start(config, method, task, bound_to(backbone))
    backbone.tuned = start.tuned
    pretraining = None
    if start.kind == "pretrained":
        pretraining = _pretraining(composed_for(composed, start.value), engine)
        folder = made(pretraining.folder, Path(config["outputs"]))
        start = Start("pretrained", pretraining.run_id, folder=folder)
    made_engine = engine(config["hardware"], backbone)
    hardware = _telling(config["hardware"], made_engine)
    telling = {**config, "hardware": hardware, "start": str(start)}
    telling["method"] = method.fingerprint_config(config["method"])
    content = identity.affecting(telling, task.digest(), backbone.weights)
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
        engine=made_engine,
        start=start,
        pretraining=pretraining,
        content=content,
        run_id=run_id,
        folder=folder,
    )


def _telling(node: Mapping[str, Any], engine: Any) -> dict[str, Any]:
    """Return what of the hardware can change a number: `auto` as it turned out, and no counts.

    Neither members nor shares of rows touch each other.
    """
    telling = {**node, "precision": engine.precision, "device": engine.device}
    for key in ("population", "ranks"):
        telling.pop(key, None)
    if not telling.get("fp16_scaling"):  # runs made before there was one keep their names
        telling.pop("fp16_scaling", None)
    return telling


def _pretraining(composed: Composed, engine: Callable[..., Any]) -> Plan:
    """Return the plan of the run that another begins as.

    Raises:
        UserError: as `plan`; keys are named as they are typed in the run that asks for it.
    """
    try:
        return plan(composed, engine)
    except UserError as error:
        raise UserError(as_typed(error)) from error


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
    Lines that another run labels are labelled first.
    """
    task, data_seed = planned.task, planned.composed.config["data_seed"]
    label(planned.composed)
    split = planned.protocol.split(task, data_seed)
    if planned.variant:
        own = f"files of {planned.variant}"
        split = replace(split, origin={**split.origin, "train": own, "dev": own})
    split = planned.setting.choose(split, data_seed)
    if task.pvps_from:
        check_pvps(task.pvps, task.labels, split.test[0].fields, task.pvps_from)
    found = overlaps(split)
    _compare(planned, found)
    _compare_start(planned)
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


def _compare_start(planned: Plan) -> None:
    """Tell where the run that a prompt begins as was split in another way, if that matters."""
    folder = planned.start.folder
    before = result.read(folder) if folder and planned.protocol.disjoint else None
    own, first = planned.content, planned.pretraining
    if first and of_corpus(first.composed.config):  # it has no examples of this task
        return
    for key in ("protocol", "data_seed") if before else ():
        if before and before.config.get(key) != own[key]:
            _LOG.warning(
                "start=run:%s has another %s: it may have learned from, or selected on, what this "
                "run selects on or reports",
                *(before.run_id, key),
            )
