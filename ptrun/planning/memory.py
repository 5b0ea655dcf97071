"""The memory of one rank in training, as a sum: pure functions of counts, a trace and a layout."""

from dataclasses import dataclass
from math import ceil

from ptrun.planning.layout import BYTES, Layout
from ptrun.planning.parameters import Parameters
from ptrun.planning.trace import Trace

FP32 = 4
MOMENTS = 2
"""AdamW's moving averages, of gradients and of their squares, both fp32."""

HEAP_SPARE = 0.5
"""What glibc's heap takes beside its blocks in use, as a share of them: holes between small blocks
of unlike lifetimes, which it cannot give back. Measured: from 35 % to all of them over again. With
`MALLOC_MMAP_THRESHOLD_=1000000` in the environment, where each block is mapped, there are none,
and a step takes some 10 % longer."""

CPU_WORKSPACE = 48 * 2**20
"""Buffers of the matrix library, and code that is first read in a step: 20 to 60 MB measured."""

CUDA_CONTEXT = 640 * 2**20
"""The driver's context and cuBLAS' workspace; allowed for, not measured here."""

CUDA_SPARE = 0.05
"""What torch's caching allocator holds beside the tensors in use; allowed for, not measured."""

ZERO_BUCKET = 500_000_000
"""Gradients that DeepSpeed gathers before it reduces them, in numbers (its default)."""


@dataclass(frozen=True)
class Work:
    """How a step is cut up: rows of a rank's batch, rows at once, passes."""

    batch: int
    rows: int
    passes: int


def work(layout: Layout, batch_size: int, length: int) -> Work:
    """Return how a rank cuts its share of a batch of texts of so many tokens."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // length))
    return Work(batch, rows, ceil(batch / rows))


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank; the peak is the sum of the first six.

    Args:
        weights: the backbone's, and all of the method's.
        gradients: of what is learned.
        optimizer: moments, and master weights where the engine has them.
        best: the best tensors so far, kept for the end.
        activations: what else a step has alive at most: activations or the update's own, less
            those gradients that are not there yet at that moment.
        spare: what the allocator and the device's libraries take.
        kept: activations that the forward keeps for the backward.
        logits: of those, what the output head puts out.
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
        """What is there between steps."""
        return self.weights + self.gradients + self.optimizer + self.best

    @property
    def peak(self) -> float:
        """The most at once."""
        return self.standing + self.activations + self.spare


def memory(counts: Parameters, found: Trace, layout: Layout, own: Work) -> Memory:
    """Return what a rank needs; `found` is the trace of its rows under its layout."""
    learned = _learned(counts, layout)
    own_tensors = counts.learned["prompt"] + counts.learned["head"] + counts.frozen_beside
    weights = _held(counts, layout) * _width(counts, layout) + FP32 * own_tensors
    width = _width(counts, layout) if counts.tunes else FP32
    gradients = (FP32 if layout.zero else width) * learned  # DeepSpeed adds them up in fp32
    at_once = _at_once(found, gradients, own)
    activations = max(at_once, _stepping(counts, layout))
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=_optimizer(layout, learned),
        best=width * learned,
        activations=activations,
        spare=_spare(found, activations, layout),
        kept=found.kept,
        logits=found.logits,
    )


def per_member(counts: Parameters) -> float:
    """Return the bytes that one more member of a population brings: its own tensors."""
    return counts.learned["total"] * FP32 * (3 + MOMENTS)


def files(counts: Parameters) -> dict[str, float]:
    """Return the sizes of what a run keeps: to answer with, and to go on from."""
    state = counts.learned["total"] * FP32 * (2 + MOMENTS)
    return {"prompt.safetensors": counts.exported, "state.safetensors": state}


def _held(counts: Parameters, layout: Layout) -> float:
    """Return the backbone's numbers on a rank."""
    return counts.held - counts.divided + counts.divided / layout.model_parallel


def _learned(counts: Parameters, layout: Layout) -> float:
    own = counts.learned["total"] - counts.learned_divided
    return own + counts.learned_divided / layout.model_parallel


def _width(counts: Parameters, layout: Layout) -> int:
    """Return the bytes of a number of the backbone: plain torch keeps a tuned one in fp32."""
    return FP32 if counts.tunes and not layout.zero else BYTES[layout.precision]


def _optimizer(layout: Layout, learned: float) -> float:
    """Return moments; ZeRO-1 has an fp32 master copy too, and divides all over its ranks."""
    if not layout.zero:
        return FP32 * MOMENTS * learned
    return FP32 * (MOMENTS + 1) * learned / layout.data_parallel


def _at_once(found: Trace, gradients: float, own: Work) -> float:
    """Return the most alive in forward and backward, beside gradients counted whole.

    In a single pass they grow while activations go: then the first are not there yet at the peak
    of the second.
    """
    if own.passes > 1:
        return found.peak
    return max(found.peak - gradients, found.peak - found.kept)


def _stepping(counts: Parameters, layout: Layout) -> float:
    """Return what the update has alive beside all that stands.

    On CUDA torch updates all tensors together, with a root of each; on a CPU one by one. DeepSpeed
    has gradients of its share in fp32, and a bucket of them.
    """
    learned = _learned(counts, layout)
    if layout.zero:
        bucket = FP32 * min(learned, ZERO_BUCKET)
        return FP32 * learned / layout.data_parallel + bucket
    return FP32 * (learned if layout.device == "cuda" else 2 * counts.largest)


def _spare(found: Trace, activations: float, layout: Layout) -> float:
    if layout.device == "cuda":
        return CUDA_CONTEXT + CUDA_SPARE * activations
    return CPU_WORKSPACE + HEAP_SPARE * min(found.small, activations)
