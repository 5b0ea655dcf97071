"""The typed root of a run's configuration: plain data only, behaviour lives in the components."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

GROUPS = ("method", "backbone", "task", "setting", "hardware", "protocol", "tracking")
"""The Hydra groups: each is a folder in `conf/`, a package in `ptrun/` and a key of the root."""


class Schedule(StrEnum):
    """How the learning rate moves after warm-up."""

    linear = "linear"
    linear_to_warmup = "linear_to_warmup"
    constant = "constant"
    exponential = "exponential"
    inverse_sqrt = "inverse_sqrt"


class Optimizer(StrEnum):
    """AdamW, whose decay is decoupled, or Adam, where it is an L2 term of the gradient."""

    adamw = "adamw"
    adam = "adam"


class Ties(StrEnum):
    """Which of equally good evaluations is kept.

    `last_goes_on` is the last, and to be as good is progress for `patience` (P-tuning on LAMA).
    `last_in_all` is the last that is as good or better in every metric of the task; progress is
    then to be better in every one.
    """

    first = "first"
    last = "last"
    last_goes_on = "last_goes_on"
    last_in_all = "last_in_all"


@dataclass
class TrainConfig:
    """One optimisation run. Steps count optimizer updates; a step sees `batch_size` examples."""

    epochs: int = 4
    max_steps: int | None = None
    """Stop after this many steps; with it set, `epochs` does not count."""
    batch_size: int = 32
    lr: float = 5e-3
    """Method files take it from the backbone: `backbone.lr.prompt` or `backbone.lr.full`."""
    schedule: Schedule = Schedule.linear
    decay: float = 0.95
    """Factor per epoch of the exponential schedule."""
    warmup: float = 0.0
    """Share of all steps in which the learning rate climbs from 0."""
    weight_decay: float = 0.0
    optimizer: Optimizer = Optimizer.adamw
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """What Adam keeps of its two moving averages, of gradients and of their squares, a step."""
    eps: float = 1e-8
    """What Adam adds to the root of the second."""
    backbone_lr: float | None = None
    """Learning rate of a tuned backbone; null is `lr`, which is then the rate of all else."""
    backbone_weight_decay: float | None = None
    """Weight decay of a tuned backbone; null is `weight_decay`."""
    drop_last: bool = False
    """Leave out the last batch of an epoch where it is smaller than the others."""
    clip: float | None = 1.0
    """Largest gradient norm of a member; null leaves gradients alone."""
    eval_every: int | None = None
    """Steps between evaluations on dev; null evaluates at the end of each epoch."""
    eval_first: bool = False
    """Also evaluate before the first step."""
    ties: Ties = Ties.first
    """Which of equally good evaluations is kept; but for `last_goes_on` a tie is no progress."""
    patience: int | None = None
    """Stop after this many evaluations without a better one; null never stops early."""


def train_config(node: Mapping[str, Any]) -> TrainConfig:
    """Return the typed form of a plain node."""
    kinds = {"schedule": Schedule, "optimizer": Optimizer, "ties": Ties}
    return TrainConfig(**{**node, **{key: kind(node[key]) for key, kind in kinds.items()}})


@dataclass(frozen=True)
class HardwareConfig:
    """What a run asks for: device, precision, memory and processes.

    `model_parallel` and `ranks` are None where the engine is a single process.
    """

    device: str
    precision: str
    token_budget: int
    checkpointing: bool
    model_parallel: int | None = None
    ranks: int | None = None

    @property
    def divides(self) -> bool:
        """Whether several processes do the run together."""
        return self.model_parallel is not None


def hardware_config(node: Mapping[str, Any]) -> HardwareConfig:
    """Return the typed form of a plain node."""
    known = [field.name for field in fields(HardwareConfig)]
    return HardwareConfig(**{key: node[key] for key in known if key in node})


@dataclass
class PretrainingConfig:
    """The run that `start=pretrained` begins as, where it differs: `ptrun.run.pretraining`."""

    recipe: str | None = None
    """The option of `method` whose `train` it learns by; null is the run's own method."""
    seed: int = 1
    """One prompt for all seeds, as in PPT."""
    start: str | None = None
    """Null is the recipe's."""
    task: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunConfig:
    """The root: five component groups, how results are claimed and kept, and the optimisation."""

    name: str = "runs"
    seed: int = 1
    """Model seed: initial prompt and head, order of examples, dropout."""
    data_seed: int = 1
    """Which examples a setting or a carved dev set takes; never touched by `seed`."""
    data_dir: str | None = None
    """Folder of `<task>/<split>.jsonl[.gz]`; wins over the hub. `$PTRUN_DATA` is its default."""
    outputs: str = "outputs"
    rerun: bool = False
    start: str | None = None
    """Where a prompt begins: `ptrun.start.spec`; null is random, the method's own."""
    method: Any = MISSING
    backbone: Any = MISSING
    task: Any = MISSING
    setting: Any = MISSING
    hardware: Any = MISSING
    protocol: Any = MISSING
    tracking: Any = MISSING
    train: TrainConfig = field(default_factory=TrainConfig)
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    expected: dict[str, Any] = field(default_factory=dict)
    """A paper's own numbers for this run; data only."""


ConfigStore.instance().store(name="run_schema", node=RunConfig)
