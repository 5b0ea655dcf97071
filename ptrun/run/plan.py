"""A run before it runs: its configuration is checked, every part is built or named.

`plan` is the last place that reads the composed dictionary. What a later stage needs is in `Plan`.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ptrun.config import identity, schema
from ptrun.config.build import Component
from ptrun.config.components import own_code
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.base import Method, check_pair
from ptrun.prompt.pvp import check_pvps
from ptrun.protocol.base import ClaimProtocol
from ptrun.run import result
from ptrun.run.labelling import Labelling, label, labelling_of
from ptrun.run.pretraining import composed_for, finished_folder, of_corpus, typed_keys
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
    """A run that was checked and named, before weights or examples are read.

    Args:
        names: the option of each group; `task` and `backbone` name local files.
        seed, data_seed, rerun, train, content: as configured; `content` is what the id covers.
        outputs, folder: the folder of all runs, and of this one.
        task, protocol, setting, backbone, engine: built.
        backbone_path: the backbone's local folder, if one was given.
        method, tracking, engine_component: built later, where they are needed.
        hardware: devices and processes that are requested.
        variant: the folder of the setting's own files, if it has some.
        source: where the task's rows come from; None for a table of the user's.
        start, start_typed: where the prompt begins, and how that was typed.
        pretraining: the plan of the prerequisite run, if there is one.
        labelling: the labeller of a corpus, if there is one.
        of_corpus: whether examples are made of a corpus without labels.
        own_code: the classes of the user's own that it uses.
        request: the configuration as it was composed, to be written beside the result.
    """

    names: Mapping[str, str]
    seed: int
    data_seed: int
    rerun: bool
    outputs: Path
    train: schema.TrainConfig
    task: Task
    protocol: ClaimProtocol
    setting: Setting
    variant: str | None
    source: Source | None
    backbone: Any
    backbone_path: str | None
    method: Component
    hardware: schema.HardwareConfig
    engine: TorchEngine
    engine_component: Component
    tracking: Component
    start: Start
    start_typed: str
    pretraining: "Plan | None"
    labelling: Labelling | None
    of_corpus: bool
    own_code: list[str]
    content: dict[str, Any]
    run_id: str
    folder: Path
    request: Composed

    def build_method(self) -> Method:
        """Return the method; the seed alone decides its random values."""
        torch.manual_seed(self.seed)
        method: Method = self.method.build(self.backbone, self.task)
        return method


def plan(composed: Composed, engine: Callable[..., Any] | None = None) -> Plan:
    """Check a configuration and name its run; read no weights and no examples.

    `engine` makes an engine of the backbone in place of the configured one: `ptrun plan` names
    runs of machines whose devices are not here.

    Raises:
        UserError: a key, a value, a combination or a file is wrong.
    """
    request, components = composed, composed.components()
    composed, labelling = labelling_of(composed, components["hardware"])
    config, names = composed.config, composed.names
    components["task"] = Component("task", config["task"])
    train = schema.train_config(config["train"])
    check_train(train)
    setting = components["setting"].build()
    variant = _variant(setting, config)
    task = components["task"].build(config["data_dir"], variant)
    backbone = components["backbone"].build()
    method: Any = components["method"].target
    check_pair(method, config["method"], backbone, task)
    start = plan_start(composed, method, task, bound_to(backbone))
    backbone.tuned = start.tuned
    pretraining = None
    if start.kind == "pretrained":
        pretraining = _pretraining(composed_for(composed, start.value), engine)
        folder = finished_folder(pretraining.folder, composed.outputs)
        start = Start("pretrained", pretraining.run_id, folder=folder)
    made_engine = engine(backbone) if engine else components["hardware"].build(backbone)
    hardware = _telling(config["hardware"], made_engine)
    telling = {**config, "hardware": hardware, "start": str(start)}
    telling["method"] = method.fingerprint_config(config["method"])
    content = identity.affecting(telling, task.digest(), backbone.weights)
    run_id = identity.run_id(names, content)
    return Plan(
        names=names,
        seed=config["seed"],
        data_seed=config["data_seed"],
        rerun=composed.rerun,
        outputs=composed.outputs,
        train=train,
        task=task,
        protocol=components["protocol"].build(),
        setting=setting,
        variant=variant,
        source=_source(config, variant),
        backbone=backbone,
        backbone_path=config["backbone"].get("path"),
        method=components["method"],
        hardware=composed.hardware,
        engine=made_engine,
        engine_component=components["hardware"],
        tracking=components["tracking"],
        start=start,
        start_typed=config["start"] or "random",
        pretraining=pretraining,
        labelling=labelling,
        of_corpus=of_corpus(config),
        own_code=own_code({group: own.node for group, own in components.items()}),
        content=content,
        run_id=run_id,
        folder=composed.outputs / composed.name / run_id,
        request=request,
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


def _pretraining(composed: Composed, engine: Callable[..., Any] | None) -> Plan:
    """Return the plan of a prerequisite run.

    Raises:
        UserError: as `plan`; keys are named as they are typed in the run that asks for it.
    """
    try:
        return plan(composed, engine)
    except UserError as error:
        raise UserError(typed_keys(error)) from error


def _variant(setting: Setting, config: dict[str, Any]) -> str | None:
    """Return the folder of a setting's own files, if it needs them or they are there."""
    if setting.variant is None or setting.required:
        return setting.variant
    source = _source(config, setting.variant)  # the user's own files have no variants
    return setting.variant if source and source.exists("train") else None


def _source(config: Mapping[str, Any], variant: str | None) -> Source | None:
    """Return where a task's rows come from; None for a table of the user's own."""
    name, origin = config["task"].get("name"), config["task"].get("source")
    return None if origin is None else Source(str(name), origin, config["data_dir"], variant)


def split_of(planned: Plan) -> tuple[Split, Overlaps]:
    """Return the examples of a run, and what their parts share.

    They are what the protocol hands out, as the setting cuts it; the user's own pattern fits them.
    Lines that another run labels are labelled first.
    """
    task, data_seed = planned.task, planned.data_seed
    if planned.labelling:
        label(planned.labelling)
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
    if first and first.of_corpus:  # it has no examples of this task
        return
    for key in ("protocol", "data_seed") if before else ():
        if before and before.config.get(key) != own[key]:
            _LOG.warning(
                "start=run:%s has another %s: it may have learned from, or selected on, what this "
                "run selects on or reports",
                *(before.run_id, key),
            )
