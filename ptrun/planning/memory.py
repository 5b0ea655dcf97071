"""The memory of one rank in training: pure functions of counts, a trace and a layout."""

from dataclasses import dataclass
from math import ceil

from ptrun.backbone.quantization.formats import BYTES as HELD
from ptrun.hardware.free_memory import PER_NUMBER
from ptrun.planning.layout import BYTES, Layout
from ptrun.planning.parameters import Parameters
from ptrun.planning.trace import Trace

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


def work(layout: Layout, batch_size: int, length: int) -> Work:
    """Return the step of a rank on texts of `length` tokens."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // length))
    return Work(batch, rows, ceil(batch / rows))


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank; the peak is the sum of the first six.

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
    """

    weights: float
    gradients: float
    optimizer: float
    best: float
    activations: float
    spare: float
    kept: float
    logits: float

    @property
    def standing(self) -> float:
        """Bytes between steps."""
        return self.weights + self.gradients + self.optimizer + self.best

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        return self.standing + self.activations + self.spare


def memory(counts: Parameters, found: Trace, layout: Layout, step: Work) -> Memory:
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
    )


def per_member(counts: Parameters) -> float:
    """Return the bytes that one more member of a population adds."""
    return counts.learned["total"] * PER_NUMBER


def files(counts: Parameters) -> dict[str, float]:
    """Return the sizes of a run's files: its prompt and its saved state."""
    state = counts.learned["total"] * FP32 * (2 + MOMENTS)
    return {"prompt.safetensors": counts.exported, "state.safetensors": state}


def _on_rank(total: int, divided: int, layout: Layout) -> float:
    """Return the numbers on a rank if model parallelism divides some of them."""
    return total - divided + divided / layout.model_parallel


def _saved(counts: Parameters, layout: Layout) -> float:
    """Return the bytes that quantization saves."""
    if layout.quantization == "none":
        return 0.0
    return counts.quantizable * (BYTES[layout.precision] - HELD[layout.quantization])


def _width(counts: Parameters, layout: Layout) -> int:
    """Return the bytes per number of the backbone; plain torch keeps a tuned one in fp32."""
    return FP32 if counts.tunes and not layout.zero else BYTES[layout.precision]


def _optimizer(layout: Layout, learned: float) -> float:
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


def _update(counts: Parameters, layout: Layout, learned: float) -> float:
    """Return the temporary bytes of the update.

    On CUDA torch updates all tensors together, with a square root of each; on a CPU one by one.
    DeepSpeed has the fp32 gradients of its share, and a bucket.
    """
    if layout.zero:
        bucket = FP32 * min(learned, ZERO_BUCKET)
        return FP32 * learned / layout.data_parallel + bucket
    return FP32 * (learned if layout.device == "cuda" else 2 * counts.largest)


def _spare(found: Trace, activations: float, layout: Layout) -> float:
    if layout.device == "cuda":
        return CUDA_CONTEXT + CUDA_SPARE * activations
    return CPU_WORKSPACE + HEAP_SPARE * min(found.small, activations)
