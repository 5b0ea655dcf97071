"""The typed root of a configuration. It is plain data; components have the behaviour."""

from collections.abc import Mapping
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf, StringNode, open_dict

GROUPS = ("method", "readout", "backbone", "task", "setting", "hardware", "protocol", "tracking")
LISTED = (*GROUPS, "cluster")
"""Groups with options; the last one builds no component."""
"""The Hydra groups. Each is a folder of `conf/` and a key of the root."""


Precision = Literal["auto", "fp32", "bf16", "fp16"]
Quantization = Literal["none", "int8", "nf4"]


class Schedule(StrEnum):
    """How the learning rate changes after warm-up."""

    linear = "linear"
    linear_to_warmup = "linear_to_warmup"
    cosine = "cosine"
    constant = "constant"
    exponential = "exponential"
    inverse_sqrt = "inverse_sqrt"


class Optimizer(StrEnum):
    """AdamW has decoupled weight decay; Adam adds it to the gradient as an L2 term."""

    adamw = "adamw"
    adam = "adam"


class Order(StrEnum):
    """The order of examples in an epoch: shuffled by the model seed, or that of the file.

    `buckets` sorts each 20 batches of the file's order by tokens, the longest first.
    """

    shuffled = "shuffled"
    file = "file"
    buckets = "buckets"


class Ties(StrEnum):
    """Which of several equally good evaluations is selected.

    `last_goes_on` selects the last; a tie resets `patience` (P-tuning on LAMA).
    `last_in_all` selects the last that is as good or better in every metric of `compared`. Only an
    evaluation that is better in all of them resets `patience`.
    """

    first = "first"
    last = "last"
    last_goes_on = "last_goes_on"
    last_in_all = "last_in_all"


class Select(StrEnum):
    """Which evaluation on dev a run keeps.

    `metric` keeps the best in the task's metric, `loss` the one with the lowest loss (PPT's
    pre-training), `last` that of the last step, as scripts with a fixed number of steps do. `auto`
    is `metric`, and `loss` where a metric takes written texts.
    """

    auto = "auto"
    metric = "metric"
    loss = "loss"
    last = "last"


@dataclass
class TrainConfig:
    """The optimization of one run. A step is an optimizer update on `batch_size` examples."""

    epochs: int = 4
    """Passes over the training examples."""
    max_steps: int | None = None
    """Stop after this many steps; if set, `epochs` is ignored."""
    batch_size: int = 32
    """Examples of a step."""
    lr: float = 5e-3
    """Methods take it from the backbone: `backbone.lr.prompt` or `backbone.lr.full`."""
    schedule: Schedule = Schedule.linear
    decay: float = 0.95
    """Factor per epoch of the exponential schedule."""
    warmup: float = 0.0
    """Fraction of all steps in which the learning rate rises from 0."""
    warmup_from_zero: bool = False
    """Step k of w has the rate k / w and the first one 0, as in transformers, not (k + 1) / w."""
    weight_decay: float = 0.0
    """Decay of the trained parameters."""
    decay_vectors: bool = False
    """Weight decay also of biases and norms, as in code that names no exception (IDPG)."""
    optimizer: Optimizer = Optimizer.adamw
    betas: list[float] = field(default_factory=lambda: [0.9, 0.999])
    """Adam's decay rates of the averages of gradients and of squared gradients."""
    eps: float = 1e-8
    """Adam's term in the denominator, for numerical stability."""
    backbone_lr: float | None = None
    """Learning rate of a tuned backbone; null is `lr`. All other parameters use `lr`."""
    backbone_weight_decay: float | None = None
    """Weight decay of a tuned backbone; null is `weight_decay`."""
    order: Order = Order.shuffled
    drop_last: bool = False
    """Leave out the last batch of an epoch if it is smaller than the others."""
    clip: float | None = 1.0
    """Maximum gradient norm of a run; null does not clip."""
    eval_every: int | None = None
    """Steps between evaluations on dev; null evaluates after each epoch."""
    eval_rows: int | None = None
    """Dev examples that are evaluated, drawn once with the data seed; null evaluates all."""
    eval_first: bool = False
    """Also evaluate before the first step."""
    select: Select = Select.auto
    """Which evaluation is kept and reported."""
    ties: Ties = Ties.first
    """Which of several equally good evaluations is selected."""
    compared: list[str] | None = None
    """The metrics of `ties=last_in_all`; null is all metrics of the task."""
    patience: int | None = None
    """Stop after this many evaluations without progress; null never stops early."""


def train_config(node: Mapping[str, Any]) -> TrainConfig:
    """Return the typed form of a plain node."""
    kinds = {"schedule": Schedule, "optimizer": Optimizer, "ties": Ties, "select": Select}
    kinds |= {"order": Order}  # that of earlier runs has its default
    typed = {key: kind(node[key]) for key, kind in kinds.items() if key in node}
    return TrainConfig(**{**node, **typed})


@dataclass(frozen=True)
class HardwareConfig:
    """What a run requests: device, precision, memory, processes, and runs that share passes.

    `model_parallel` and `ranks` are None if the engine is a single process.
    """

    device: str
    precision: Precision
    token_budget: int
    checkpointing: bool
    model_parallel: int | None = None
    ranks: int | None = None
    population: int = 1
    quantization: str = "none"

    @property
    def divides(self) -> bool:
        """Whether several processes share the run."""
        return self.model_parallel is not None


def is_hardware(node: Mapping[str, Any]) -> bool:
    """Return whether a plain node has all keys without a default."""
    return all(key.name in node for key in fields(HardwareConfig) if key.default is NO_DEFAULT)


def hardware_config(node: Mapping[str, Any]) -> HardwareConfig:
    """Return the typed form of a plain node."""
    names = [field.name for field in fields(HardwareConfig)]
    return HardwareConfig(**{name: node[name] for name in names if name in node})


@dataclass
class PretrainingConfig:
    """Changes for the prerequisite run of `start=pretrained`: `ptrun.start.pretraining`."""

    recipe: str | None = None
    """The option of `method` whose `train` is used; null is the run's own method."""
    seed: int = 1
    """All seeds start from one prompt, as in PPT."""
    start: str | None = None
    """Null uses the start of the recipe."""
    task: dict[str, Any] = field(default_factory=dict)
    """Keys of its task, as in `pretraining.task.source.corpus=DIR`."""
    method: dict[str, Any] = field(default_factory=dict)
    """Keys of its method."""
    readout: dict[str, Any] = field(default_factory=dict)
    """Keys of its read-out."""
    train: dict[str, Any] = field(default_factory=dict)
    """Keys of its training."""


class Retry(StrEnum):
    """Which runs of a sweep are tried again: failed ones start anew, and keep the old folder."""

    none = "none"
    failed = "failed"


class Share(StrEnum):
    """Whether the runs of a sweep share passes of a frozen backbone where they can."""

    auto = "auto"
    none = "none"


class On(StrEnum):
    """Where runs are done: in processes of this machine, or in jobs of a Slurm cluster."""

    local = "local"
    slurm = "slurm"


@dataclass
class SweepConfig:
    """How the runs of a command are done. It changes no result and is in no run id."""

    retry: Retry = Retry.none
    fail_fast: bool = False
    """Start no other run after a failure, and stop those that are running at their next step."""
    dry_run: bool = False
    """List the runs, their states and their groups, and do nothing."""
    wait: bool = False
    """Wait for runs that another process does, and do them if it leaves them."""
    share: Share = Share.auto
    devices: Any = "auto"
    """Groups of runs at a time: `auto` is one on each visible GPU, or one on the CPU."""
    shard: str | None = None
    """`I/N`: do only the I-th of N equal parts of the runs."""
    on: On = On.local


@dataclass
class ClusterConfig:
    """The jobs of `sweep.on=slurm`. It changes no result and is in no run id.

    `conf/cluster/default.yaml` describes the fields.
    """

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    tflops: float | None = None
    max_time: int = 1440
    time: int | None = None
    memory: float | None = None
    cpus: int | None = None
    nodes: int = 1
    jobs: int = 100
    warn: int = 120
    setup: list[str] = field(default_factory=list)
    sbatch: dict[str, Any] = field(default_factory=dict)


class Keep(StrEnum):
    """The large files that a finished run keeps: none, its state, its tuned model, or both."""

    none = "none"
    state = "state"
    weights = "weights"
    all = "all"

    @property
    def has_weights(self) -> bool:
        """Whether a tuned model is written."""
        return self in (Keep.weights, Keep.all)


@dataclass
class RunConfig:
    """The root: the component groups, the optimization, and where and how results are kept."""

    name: str = "runs"
    """Folder of the run below `outputs`; the runs of one folder belong together."""
    seed: int = 1
    """Model seed: initial prompt and head, order of examples, dropout."""
    data_seed: int = 1
    """Decides which examples a setting or a dev split takes; independent of `seed`."""
    data_dir: str | None = None
    """Folder of `<task>/<split>.jsonl[.gz]`; used before the hub. Default: `$PTRUN_DATA`."""
    outputs: str = "outputs"
    """Folder of all runs."""
    rerun: bool = False
    """Repeat a finished run and keep its old folder."""
    keep: Keep | None = None
    """The large files that a finished run keeps, beside metrics, predictions and prompt: null is
    `weights` for a single run, and `none` in a sweep."""
    sweep: SweepConfig = field(default_factory=SweepConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    trial: Any = None
    """Set by `ptrun search`: such a run scores no test examples, and stops at an evaluation after
    which its best dev score is below the floor of that step; `{20: 55.0}` are floors by step."""
    forgetting: str | None = None
    """A file with a text a line, on which a finished run measures the rise of the backbone's loss:
    `ptrun.runs.forgetting`. Its content is in the run id. For left-to-right backbones."""
    start: str | None = None
    """How the prompt is initialized: `ptrun.start.spec`; null is the method's random start."""
    method: Any = MISSING
    readout: Any = MISSING
    backbone: Any = MISSING
    task: Any = MISSING
    setting: Any = MISSING
    hardware: Any = MISSING
    protocol: Any = MISSING
    tracking: Any = MISSING
    train: TrainConfig = field(default_factory=TrainConfig)
    pretraining: PretrainingConfig = field(default_factory=PretrainingConfig)
    expected: dict[str, Any] = field(default_factory=dict)
    """The numbers of a paper for this run; ptrun only records them."""


KEYS = (*(field.name for field in fields(RunConfig)), "continue")
"""The keys of the root. `continue` is a word of Python, so it is no field."""


def root() -> Any:
    """Return the root with its types and defaults."""
    config = OmegaConf.structured(RunConfig)
    with open_dict(config):
        config["continue"] = StringNode(None)
    return config


ConfigStore.instance().store(name="run_schema", node=root())
