"""The plan of a run: its configuration is checked, and every part is built or named.

`plan` is the last function that reads the composed dictionary. Later stages read the `Plan`.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone import dropout
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config import identity, schema
from ptrun.config.build import Component, target
from ptrun.config.components import TARGET, own_code
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.files import below
from ptrun.folder import request as request_file
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.hub.repository import Repository, pin
from ptrun.method.base import Method, check_kept, check_pair
from ptrun.runs.longer import compared, differing, origin
from ptrun.start.pretraining import composed_for, finished_folder, typed_keys
from ptrun.start.saved_prompt import check_fits, prompt_of
from ptrun.start.spec import CONTINUE, Start
from ptrun.start.start import plan_start
from ptrun.task.dataset import MESSAGES, Task
from ptrun.task.protocol import ClaimProtocol
from ptrun.task.setting import Setting
from ptrun.task.source import Source
from ptrun.training.optim import check_train, unused_keys


@dataclass(frozen=True)
class Plan:
    """A checked run with its id, before weights or examples are read.

    Args:
        names: the option of each group; for local files, `task` and `backbone` have their name.
        seed, data_seed, rerun, train: as configured.
        content, run_id: the configuration that can change a number, and the id made from it.
        group: what runs share that differ in their seed alone.
        folder: the folder of this run.
        task, protocol, setting, backbone, engine: built.
        backbone_path: the backbone's local folder, if one was given.
        method, readout, tracking, engine_component: checked nodes that are built later.
        usual_rates: learning rates of the backbone's file, by what is trained.
        hardware: the requested devices and processes.
        variant: the folder of the setting's own files, if there are any.
        source: where the task's rows come from; None for the user's own table.
        start, start_typed: the start of the prompt, and the value of `start=`.
        needs: the runs that are done first if they are not finished.
        own_code: the user's own classes in the configuration, with a hash of their source.
        texts: the texts of `forgetting`.
        request: the composed configuration, written beside the result.
    """

    names: Mapping[str, str]
    seed: int
    data_seed: int
    rerun: bool
    train: schema.TrainConfig
    task: Task
    protocol: ClaimProtocol
    setting: Setting
    variant: str | None
    source: Source | None
    backbone: PretrainedBackbone
    backbone_path: str | None
    method: Component
    readout: Component
    usual_rates: Mapping[str, float]
    hardware: schema.HardwareConfig
    engine: TorchEngine
    engine_component: Component
    tracking: Component
    start: Start
    start_typed: str
    needs: tuple["Plan", ...]
    own_code: dict[str, str]
    content: dict[str, Any]
    run_id: str
    group: str
    folder: Path
    texts: tuple[str, ...]
    request: Composed

    @property
    def repositories(self) -> list[Repository]:
        """The hub repositories of the backbone and the data."""
        hub = self.backbone.repository
        return [*([hub] if hub else []), *self.task.repositories]

    def build_method(self) -> Method:
        """Return the method; only the seed decides its random values."""
        torch.manual_seed(self.seed)
        method: Method = self.method.build(self.backbone, self.task, self.readout.build())
        return method


def ordered(planned: Plan) -> Iterator[Plan]:
    """Yield the runs that a run needs, each after those that it needs itself."""
    for other in planned.needs:
        yield from ordered(other)
        yield other


def unkept(planned: Plan) -> int:
    """Return the bytes of the model that a run tunes and does not keep; 0 if there is none."""
    method: Any = planned.method.target
    if planned.request.keep.has_weights or not method.tunes(planned.method.node):
        return 0
    return 4 * int(planned.backbone.size())


def plan(composed: Composed, engine: Callable[..., Any] | None = None) -> Plan:
    """Check a configuration and return its plan. Weights and examples are not read.

    `engine` replaces the configured engine: `ptrun plan` plans runs for other machines.

    Raises:
        UserError: a key, a value, a combination or a file is wrong.
    """
    request, components = composed, composed.components()
    other_run = origin(composed) if composed.config.get("continue") is not None else None
    # 1. The data: what a class that makes rows adds to the task, optimisation, setting and task
    node, rows = composed.task, composed.task.get("source") or {}
    if TARGET in rows and not Source(node["name"], rows, composed.data_dir).exists("train"):
        made = target("task", rows).completed(composed)
        composed = replace(composed, config={**composed.config, "task": made})
    config, names = composed.config, composed.names
    components["task"] = Component("task", config["task"])
    train = schema.train_config(config["train"])
    check_train(train)
    setting = components["setting"].build()
    variant = _variant(setting, config)
    task = components["task"].build(config["data_dir"], variant)
    if task.recognised:
        node = {**config["task"], **task.recognised}
        composed, request = (
            replace(c, config={**c.config, "task": node}) for c in (composed, request)
        )
        components["task"] = Component("task", node)
    # 2. The model: backbone, method and read-out
    backbone = components["backbone"].build()
    method: Any = components["method"].target
    composed = composed.read_by(
        *check_pair(method, *composed.readout, backbone, task, composed.typed_readout)
    )
    config, names = composed.config, composed.names
    request = request.read_by(*composed.readout)
    components["readout"] = Component("readout", config["readout"])
    reading = components["readout"].target
    check_kept(reading, method, tunes=method.tunes(config["method"]))
    # 3. The start of the prompt, and the runs that it needs
    start = other_run[0] if other_run else plan_start(composed, method, task, backbone)
    backbone.tuned, backbone.pooler_seed = start.tuned, config["seed"]
    needs: tuple[Plan, ...] = ()
    if start.kind == "pretrained":
        try:
            other = plan(composed_for(composed, start.value), engine)
        except UserError as error:
            raise UserError(typed_keys(error)) from error
        needs = (replace(other, folder=finished_folder(other.folder, composed.outputs)),)
        start = Start("pretrained", other.run_id, folder=needs[0].folder)
    built_engine = engine(backbone) if engine else components["hardware"].build(backbone)
    # 4. The id: what can change a number
    code = own_code({group: component.node for group, component in components.items()})
    hardware = {"precision": built_engine.precision, **identity.quantized(config["hardware"])}
    if config["hardware"].get("fp16_scaling"):
        hardware["fp16_scaling"] = True
    variables = {"hardware": hardware, "start": str(start), "masks": dropout.RULE}
    texts: tuple[str, ...] = ()
    if (file := config.get("forgetting")) is not None:
        from ptrun.runs.forgetting import digest_of, texts_of

        texts = texts_of(file, backbone)
        variables["forgetting"] = digest_of(texts)
    variables["method"] = method.fingerprint_config(config["method"])
    variables["readout"] = reading.fingerprint_config(config["readout"])
    variables |= {"own_code": code} if code else {}
    if MESSAGES in task.fields and not backbone.repository:  # a hub model's is in its result
        from ptrun.readout.chat import template_digest

        variables["template"] = template_digest(backbone, config["readout"])
    content = identity.affecting({**config, **variables}, task.digest(), backbone.weights)
    essence = _essence(content, components, method, train)
    if other_run:
        before = _essence(other_run[1].result.config, components, method, train)
        start = compared(*other_run, differing(essence, before), content, names, train)
    run_id = identity.run_id(names, essence)
    folder = below(composed.outputs, composed.name, run_id)
    # 5. The commits of the hub: of the run that is resumed, else of the one that is repeated
    # (`commits`), else of the one that the prompt starts from
    hubs = [*filter(None, [backbone.repository]), *task.repositories]
    resumed, started = (
        request_file.read(other).commits if other and (other / request_file.FILE).is_file() else {}
        for other in (None if composed.rerun or not hubs else folder, hubs and start.folder)
    )
    commits = {**started, **composed.commits, **resumed} if hubs else composed.commits
    pin(hubs, commits)
    planned = Plan(
        names=names,
        seed=config["seed"],
        data_seed=config["data_seed"],
        rerun=composed.rerun,
        train=train,
        task=task,
        protocol=components["protocol"].build(),
        setting=setting,
        variant=variant,
        source=_source(config, variant),
        backbone=backbone,
        backbone_path=config["backbone"].get("path"),
        method=components["method"],
        readout=components["readout"],
        usual_rates=config["backbone"].get("lr") or {},
        hardware=schema.hardware_config(config["hardware"]),
        engine=built_engine,
        engine_component=components["hardware"],
        tracking=components["tracking"],
        start=start,
        start_typed=str(start) if other_run else config["start"] or "random",
        needs=needs,
        own_code=code,
        content=content,
        run_id=run_id,
        group=identity.group_id(essence),
        folder=folder,
        texts=texts,
        request=replace(request, commits=commits, needs=_needed(needs, start)),
    )
    for other in needs:  # whose prompt has the same form
        learner = planned.build_method()
        if not prompt_of(learner):
            raise UserError("start=pretrained: this method learns no prompt. Type start=random.")
        check_fits(learner, prompt_of(other.build_method()), other.folder)
    return planned


def _needed(needs: Sequence[Plan], start: Start) -> list[str]:
    """Return the ids of the runs that a run needs: those done before it, or named by its start."""
    folders = [other.folder for other in needs]
    if start.kind in ("run", "joined", CONTINUE):
        folders += [folder for folder in (start.folder, *start.folders) if folder]
    return [folder.resolve().name for folder in folders]


def _essence(
    content: Mapping[str, Any],
    components: Mapping[str, Component],
    method: type[Method],
    train: schema.TrainConfig,
) -> dict[str, Any]:
    """Return what the id of a run is made from: no defaults, and no keys that change nothing."""
    parts = {g: component.defaults for g, component in components.items() if g in content}
    node = components["method"].node
    unused = {"method": method.unused(node), "train": unused_keys(train, tuned=method.tunes(node))}
    if not method.learns:
        unused["train"] = {*vars(train)}
    train_defaults = {k: getattr(v, "value", v) for k, v in vars(schema.TrainConfig()).items()}
    return identity.essence(content, {**parts, "train": train_defaults}, unused)


def with_readout(composed: Composed) -> Composed:
    """Return a configuration with its read-out resolved, as `plan` records it.

    A combination that `plan` would refuse stays as it is.
    """
    parts = composed.components()
    try:
        task, backbone = parts["task"].build(composed.data_dir, None), parts["backbone"].build()
        readout = check_pair(parts["method"].target, *composed.readout, backbone, task)
    except UserError:
        return composed
    return composed.read_by(*readout)


def _variant(setting: Setting, config: dict[str, Any]) -> str | None:
    """Return the folder of a setting's own files, if it requires them or they exist."""
    if setting.variant is None or setting.required:
        return setting.variant
    source = _source(config, setting.variant)  # the user's own files have no variants
    return setting.variant if source and source.exists("train") else None


def _source(config: Mapping[str, Any], variant: str | None) -> Source | None:
    """Return where a task's rows come from; None for the user's own table."""
    name, origin = config["task"].get("name"), config["task"].get("source")
    return None if origin is None else Source(str(name), origin, config["data_dir"], variant)


# The shape of a run: what the runs of a group, which share passes of one backbone, have in common.
#
# That is the backbone, task, precision and the options of the method. They may differ in what a
# member of a population decides on its own: seeds, examples, start, all of `train`, and the options
# that a method lists in `may_differ`.

_OWN = ("seed", "data_seed", "setting", "start", "train", "trial", "method", "backbone", "data")
_READOUT = "readout"


def shape(planned: Plan) -> str | None:
    """Return what the runs of a group have in common; None if the run is done alone."""
    method: Any = planned.method.target
    shared = method.shares(planned.method.node, planned.backbone)
    reading: Any = planned.readout.build()
    alone = planned.start.tuned is not None or planned.hardware.divides or reading.whole
    if shared is None or alone:
        return None
    common = {k: v for k, v in planned.content.items() if k not in (*_OWN, _READOUT)}
    read = {k: v for k, v in planned.readout.node.items() if k not in reading.may_differ}
    # a pooler that the files lack is a part of the backbone
    random_pooler = read.get("pooler") == "frozen" and not planned.backbone.has_pooler
    facts = {
        "common": common,
        "method": shared,
        "backbone": [planned.content["backbone"], planned.backbone_path],
        "commit": hub.recorded if (hub := planned.backbone.repository) else None,
        _READOUT: read,
        "pooler": planned.seed if random_pooler else None,
        "hardware": planned.engine_component.node,
        "tracking": planned.tracking.node,
        "outputs": str(planned.request.outputs.absolute()),
    }
    return json.dumps(facts, sort_keys=True, default=str)
