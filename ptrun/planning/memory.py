"""The memory of one rank in training: pure functions of counts, a trace and a layout."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import nn

from ptrun.backbone.pretrained import linear_maps
from ptrun.backbone.quantization import BYTES as HELD
from ptrun.backbone.quantization import Quantization
from ptrun.config.schema import HardwareConfig, Precision
from ptrun.hardware.device import PER_NUMBER, free, resolved
from ptrun.method.base import Method
from ptrun.planning.trace import Trace

# The parts of an engine option that decide memory: device, precision and division.

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class HardwareLayout:
    """One option of `hardware`.

    Args:
        option: its name.
        device: `cpu` or `cuda`.
        precision: the precision of a frozen backbone's weights and of computation.
        token_budget: the most computed tokens in a micro-batch.
        checkpointing: whether activations are recomputed.
        zero: whether data-parallel ranks divide the optimizer state (ZeRO-1).
        model_parallel: the number of ranks that divide the matrices of the layers.
        ranks: processes on one machine.
        quantization: how the linear maps of a frozen backbone are held.
    """

    option: str
    device: Literal["cpu", "cuda"]
    precision: str
    token_budget: int
    checkpointing: bool
    zero: bool = False
    model_parallel: int = 1
    ranks: int = 1
    quantization: Quantization = "none"

    @property
    def data_parallel(self) -> int:
        """The number of copies of the backbone that share a batch."""
        return max(1, self.ranks // self.model_parallel)

    @property
    def width(self) -> int:
        """Bytes per number of a frozen backbone."""
        return BYTES[self.precision]

    @property
    def title(self) -> str:
        """The title in a table."""
        shared = f", {self.model_parallel} x {self.data_parallel} ranks" if self.ranks > 1 else ""
        held = "" if self.quantization == "none" else f", {self.quantization}"
        return f"{self.option} ({self.device}, {self.precision}{held}{shared})"


def layout_of(
    option: str, config: HardwareConfig, dtype: Precision, *, elsewhere: bool
) -> HardwareLayout:
    """Return the layout of an option's configuration.

    Args:
        option: its name.
        config: device, precision and processes that are requested.
        dtype: the backbone's default precision.
        elsewhere: plan for a device that is not here; `device: auto` is then `cuda`.
    """
    visible = torch.cuda.device_count()
    device = config.device
    if device == "auto":
        device = "cuda" if elsewhere or visible else "cpu"
    parallel = config.model_parallel or 1
    gpus = visible if config.divides and device == "cuda" else 0
    return HardwareLayout(
        option=option,
        device="cuda" if device == "cuda" else "cpu",
        precision=resolved(config.precision, config.device, dtype),
        token_budget=config.token_budget,
        checkpointing=config.checkpointing,
        zero=config.divides,
        model_parallel=parallel,
        ranks=config.ranks or max(gpus, parallel),
        quantization=config.quantization,  # type: ignore[arg-type]
    )


# The total and learned parameters of a run, by part, from sizes alone.

_IN_A_LAYER = re.compile(r"\.\d+\.")
_UNTIED_OUTPUT = "lm_head.weight"


@dataclass(frozen=True)
class Parameters:
    """Counts of one run.

    Args:
        learned: learned parameters by part as in a result, and `total`.
        total: all parameters by part; the backbone's is its published size.
        held: numbers of the backbone in memory, with output head and pooler.
        quantizable: the held numbers of the linear maps of the layers.
        divided: the held numbers that model parallelism divides.
        learned_divided: the divided numbers that are learned.
        largest: numbers of the largest learned tensor.
        exported: bytes of the tensors that prediction needs.
        tunes: whether the backbone is learned.
        frozen_beside: frozen numbers of method and head.
    """

    learned: Mapping[str, int]
    total: Mapping[str, int]
    held: int
    quantizable: int
    divided: int
    learned_divided: int
    largest: int
    exported: int
    tunes: bool
    frozen_beside: int


def count(method: Method) -> Parameters:
    """Return the counts of a method and its backbone, which may be on the meta device."""
    backbone, learned = method.backbone, method.learned()
    counts = method.learned_parameters()
    named = {name: p for name, p in backbone.model.named_parameters() if "adapter" not in name}
    split = {id(p): p.numel() for name, p in named.items() if _divided(name, p)}
    beside = sum(b.numel() for b in method.buffers())
    return Parameters(
        learned=counts,
        total={
            "prompt": counts["prompt"] + beside,
            "head": counts["head"],
            "backbone": backbone.size(),
        },
        held=sum({id(p): p.numel() for p in named.values()}.values()),
        quantizable=sum(
            {id(m.weight): m.weight.numel() for m in linear_maps(backbone).values()}.values()
        ),
        divided=sum(split.values()),
        learned_divided=sum(split.get(id(p), 0) for p in learned.values()),
        largest=max((p.numel() for p in learned.values()), default=0),
        exported=sum(t.numel() * t.element_size() for t in method.exported().values()),
        tunes=method.tunes_backbone,
        frozen_beside=beside,
    )


def _divided(name: str, parameter: nn.Parameter) -> bool:
    """Return whether model parallelism divides a parameter: matrices of layers, an untied output.

    Embeddings, norms and the table of relative positions are whole on every rank.
    """
    layer = _IN_A_LAYER.search(name) and parameter.dim() == 2 and "relative" not in name
    return bool(layer) or name == _UNTIED_OUTPUT


FP32 = 4
MOMENTS = 2
"""AdamW's moving averages of gradients and of their squares, both fp32."""

HEAP_SPARE = 0.5
"""The fragmentation of glibc's heap, as a share of the small blocks in use. Measured: 35 to 100 %.
`MALLOC_MMAP_THRESHOLD_=1000000` maps each block: it avoids fragmentation, and a step takes about
10 % longer."""

CPU_WORKSPACE = 48 * 2**20
"""Buffers of the matrix library, and code that a step loads first. Measured: 20 to 60 MB."""

CUDA_CONTEXT = 640 * 2**20
"""The context of the driver and the workspace of cuBLAS: an allowance, not measured."""

CUDA_SPARE = 0.05
"""The unused cache of torch's allocator, as a share: an allowance, not measured."""

ZERO_BUCKET = 500_000_000
"""Gradients that DeepSpeed reduces together, in numbers (its default)."""


@dataclass(frozen=True)
class Work:
    """The step of a rank: rows of its batch, rows of a micro-batch, and micro-batches."""

    batch: int
    rows: int
    passes: int


def work(layout: HardwareLayout, batch_size: int, length: int) -> Work:
    """Return the step of a rank on texts of `length` tokens."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // length))
    return Work(batch, rows, ceil(batch / rows))


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank; the peak is the sum of the first six, or of `writing` for activations.

    Args:
        weights: weights of the backbone and the method.
        gradients: gradients of learned parameters.
        optimizer: moments, and master weights if the engine has them.
        best: the best learned tensors so far.
        activations: the other peak of a step: activations or tensors of the update, minus the
            gradients that do not exist yet at that moment.
        spare: the overhead of the allocator and the device's libraries.
        kept: activations that the forward pass keeps for the backward pass.
        logits: the part of `kept` that is the output of the output head.
        writing: the cache and logits of texts that are written; they exist between steps.
    """

    weights: float
    gradients: float
    optimizer: float
    best: float
    activations: float
    spare: float
    kept: float
    logits: float
    writing: float = 0.0

    @property
    def standing(self) -> float:
        """Bytes between steps."""
        return self.weights + self.gradients + self.optimizer + self.best

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        return self.standing + max(self.activations, self.writing) + self.spare


def memory(
    counts: Parameters, found: Trace, layout: HardwareLayout, step: Work, writing: float = 0.0
) -> Memory:
    """Return the memory of a rank; `found` is the trace of its rows."""
    learned = _on_rank(counts.learned["total"], counts.learned_divided, layout)
    own_tensors = counts.learned["prompt"] + counts.learned["head"] + counts.frozen_beside
    held, of_backbone = _on_rank(counts.held, counts.divided, layout), _width(counts, layout)
    width = of_backbone if counts.tunes else FP32
    gradients = (FP32 if layout.zero else width) * learned  # DeepSpeed accumulates in fp32
    activations = max(_at_once(found, gradients, step), _update(counts, layout, learned))
    return Memory(
        weights=held * of_backbone - _saved(counts, layout) + FP32 * own_tensors,
        gradients=gradients,
        optimizer=_optimizer(layout, learned),
        best=width * learned,
        activations=activations,
        spare=_spare(found, activations, layout),
        kept=found.kept,
        logits=found.logits,
        writing=writing,
    )


def per_member(counts: Parameters) -> float:
    """Return the bytes that one more member of a population adds."""
    return counts.learned["total"] * PER_NUMBER


def files(counts: Parameters) -> dict[str, float]:
    """Return the sizes of a run's files: its prompt and its saved state."""
    state = counts.learned["total"] * FP32 * (2 + MOMENTS)
    return {"prompt.safetensors": counts.exported, "state.safetensors": state}


def _on_rank(total: int, divided: int, layout: HardwareLayout) -> float:
    """Return the numbers on a rank if model parallelism divides some of them."""
    return total - divided + divided / layout.model_parallel


def _saved(counts: Parameters, layout: HardwareLayout) -> float:
    """Return the bytes that quantization saves."""
    if layout.quantization == "none":
        return 0.0
    return counts.quantizable * (BYTES[layout.precision] - HELD[layout.quantization])


def _width(counts: Parameters, layout: HardwareLayout) -> int:
    """Return the bytes per number of the backbone; plain torch keeps a tuned one in fp32."""
    return FP32 if counts.tunes and not layout.zero else BYTES[layout.precision]


def _optimizer(layout: HardwareLayout, learned: float) -> float:
    """Return the moments; ZeRO-1 adds an fp32 master copy and divides all over its ranks."""
    if not layout.zero:
        return FP32 * MOMENTS * learned
    return FP32 * (MOMENTS + 1) * learned / layout.data_parallel


def _at_once(found: Trace, gradients: float, step: Work) -> float:
    """Return the peak of forward and backward pass, without gradients, which are counted whole.

    In a single micro-batch, gradients grow while activations are freed: at the peak of
    activations, gradients do not exist yet.
    """
    if step.passes > 1:
        return found.peak
    return max(found.peak - gradients, found.peak - found.kept)


def _update(counts: Parameters, layout: HardwareLayout, learned: float) -> float:
    """Return the temporary bytes of the update.

    On CUDA torch updates all tensors together, with a square root of each; on a CPU one by one.
    DeepSpeed has the fp32 gradients of its share, and a bucket.
    """
    if layout.zero:
        bucket = FP32 * min(learned, ZERO_BUCKET)
        return FP32 * learned / layout.data_parallel + bucket
    return FP32 * (learned if layout.device == "cuda" else 2 * counts.largest)


def _spare(found: Trace, activations: float, layout: HardwareLayout) -> float:
    if layout.device == "cuda":
        return CUDA_CONTEXT + CUDA_SPARE * activations
    return CPU_WORKSPACE + HEAP_SPARE * min(found.small, activations)


# The memory of each device of this machine, and of a requested one.

GIB = 2**30


@dataclass(frozen=True)
class Device:
    """A device with its total and free bytes."""

    name: str
    kind: Literal["cpu", "cuda"]
    total: int
    free: int


def visible(device_gib: float | None) -> list[Device]:
    """Return this machine's memory, its CUDA devices, and one of `device_gib` GiB."""
    found = [_machine()]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        name = f"cuda:{index} {torch.cuda.get_device_name(index)}"
        found.append(Device(name, "cuda", total, free))
    if device_gib is not None:
        size = int(device_gib * GIB)
        found.append(Device(f"a device of {device_gib:g} GiB", "cuda", size, size))
    return found


def _machine() -> Device:
    """Return the machine's memory."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Device("CPU memory", "cpu", total, free("cpu"))
