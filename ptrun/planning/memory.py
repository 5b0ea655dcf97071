"""The memory of one rank in training, estimated by a formula from sizes alone."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

import torch
from torch import nn

from ptrun.backbone.pretrained import linear_maps
from ptrun.backbone.pretrained import sizes as widths
from ptrun.backbone.quantization import BYTES as QUANTIZED_BYTES
from ptrun.backbone.quantization import Quantization
from ptrun.config.schema import HardwareConfig, Precision
from ptrun.errors import UserError
from ptrun.hardware.device import PER_NUMBER, free, resolved
from ptrun.method.base import Method
from ptrun.prompt import DeepPrefix

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

_LAYER = re.compile(r"(.*?)\.(\d+)\.")
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
    """Return the counts of a method and its backbone, which may be on the meta device.

    A tensor that has several names counts once. Adapters of PEFT lie in the backbone's modules, but
    are the method's.
    """
    backbone, learned = method.backbone, method.learned()
    counts = method.learned_parameters()
    weights = {name: p for name, p in backbone.model.named_parameters() if "adapter" not in name}
    divided = {id(p): p.numel() for name, p in weights.items() if _divided(name, p)}
    maps = {id(m.weight): m.weight.numel() for m in linear_maps(backbone).values()}
    beside = sum(b.numel() for b in method.buffers())
    return Parameters(
        learned=counts,
        total={
            "prompt": counts["prompt"] + beside,
            "head": counts["head"],
            "backbone": backbone.size(),
        },
        held=sum({id(p): p.numel() for p in weights.values()}.values()),
        quantizable=sum(maps.values()),
        divided=sum(divided.values()),
        learned_divided=sum(divided.get(id(p), 0) for p in learned.values()),
        largest=max((p.numel() for p in learned.values()), default=0),
        exported=sum(t.numel() * t.element_size() for t in method.exported().values()),
        tunes=method.tunes_backbone,
        frozen_beside=beside,
    )


def _divided(name: str, parameter: nn.Parameter) -> bool:
    """Return whether model parallelism divides a parameter: matrices of layers, an untied output.

    Embeddings, norms and the table of relative positions are whole on every rank.
    """
    layer = _LAYER.match(name) and parameter.dim() == 2 and "relative" not in name
    return bool(layer) or name == _UNTIED_OUTPUT


# The sizes that decide activations and arithmetic.

_FUSED_ACTIVATIONS = ("relu", "gelu", "silu", "swish", "gelu_pytorch_tanh")
_ACTIVATION = ("hidden_act", "activation_function", "dense_act_fn", "hidden_activation")
_DECODER_TOKENS = 3  # that a decoder reads for a one-word target: its start, a sentinel, the word


@dataclass(frozen=True)
class Sizes:
    """The sizes of a backbone and of a method's prompt.

    Args:
        layers, decoder_layers: of the encoder or only stack, and of the decoder.
        hidden, inner: H, and the width of the feed-forward part; of experts, of those that one
            token passes.
        gated: whether a second map of that width multiplies the first.
        extra: tensors of that width that the activation keeps beside its input.
        heads, queries: attention heads, and the width of a token's queries.
        keys: width of a token's keys and values.
        vocabulary: logits of a token.
        plain_norms: whether norms are computed in fp32 by single operations, as RMS norms are.
        normed: width of the queries and keys that have norms of their own.
        dropout: whether hidden states and attention weights are dropped.
        distances: scores of a query by relative distance, as in DeBERTa.
        prompt, prefix: vectors of the prompt in the input, and in each layer.
        adapters: inputs of learned maps beside those of a layer.
        reads: tokens of a text whose logits are computed.
        answers: tokens that the decoder reads.
    """

    layers: int
    decoder_layers: int
    hidden: int
    inner: int
    gated: bool
    extra: int
    heads: int
    queries: int
    keys: int
    vocabulary: int
    plain_norms: bool = False
    normed: int = 0
    dropout: bool = False
    distances: int = 0
    prompt: int = 0
    prefix: int = 0
    adapters: float = 0.0
    reads: int = 0
    answers: int = 0

    @property
    def attention(self) -> int:
        """Weights of the maps of one attention."""
        return self.hidden * (2 * self.queries + self.keys)

    @property
    def products(self) -> int:
        """Weights that a token of the text is multiplied with, in all layers.

        Those of the few tokens that a decoder reads are left out, not their keys and values.
        """
        layer = self.attention + self.hidden * self.inner * (2 + self.gated)
        return self.layers * layer + self.decoder_layers * self.hidden * self.keys


def sizes(method: Method, answer: int = 0) -> Sizes:
    """Return the sizes of a method and its backbone, which may be on the meta device.

    Args:
        method: the method.
        answer: tokens of a written answer.
    """
    backbone, readout = method.backbone, method.readout
    shape, config, family = backbone.shape, backbone.model.config, backbone.architecture
    modules = dict(backbone.model.named_modules())
    # of the maps in the first layer, the last of the feed-forward part has the widest input
    maps = linear_maps(backbone)
    layer = next(match[0] for name in maps if (match := _LAYER.match(name)))
    pairs = [widths(module) for name, module in maps.items() if name.startswith(layer)]
    inner = max(inputs for inputs, _ in pairs)
    gated = sum(outputs for _, outputs in pairs if outputs >= inner) >= 2 * inner
    if family.fused:  # experts are no linear maps
        wide = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
        inner, gated = config.num_experts_per_tok * wide, True
    activation = next((getattr(config, key) for key in _ACTIVATION if hasattr(config, key)), "gelu")
    queries = config.num_attention_heads * shape.head_size
    keys = 2 * shape.heads * shape.head_size
    # what the method adds; an adapter is two matrices
    prefixes = [module for module in method.modules() if isinstance(module, DeepPrefix)]
    adapts = (method.changes_maps or method.changes_modules) and not method.tunes_backbone
    matrices = [p for p in method.learned().values() if p.dim() == 2 and adapts]
    return Sizes(
        layers=shape.layers,
        decoder_layers=shape.decoder_layers,
        hidden=shape.hidden_size,
        inner=inner,
        gated=gated,
        extra=0 if activation in _FUSED_ACTIVATIONS else 3,
        heads=config.num_attention_heads,
        queries=queries,
        keys=keys,
        vocabulary=config.vocab_size,
        plain_norms=not any(isinstance(module, nn.LayerNorm) for module in modules.values()),
        normed=(queries + keys // 2) * any(name.endswith("q_norm") for name in modules),
        dropout=shape.dropout > 0,
        distances=512 if family.position_maps else 0,
        prompt=0 if prefixes else method.prompt_positions,
        prefix=len(prefixes[0]()) if prefixes else 0,
        adapters=sum(max(matrix.shape) for matrix in matrices) / 2 / shape.layers,
        reads=answer if readout.writes else int(readout.pattern is not None),
        answers=answer or _DECODER_TOKENS,
    )


# The formula.

FP32 = 4
MOMENTS = 2
"""AdamW's moving averages of gradients and of their squares, both fp32."""

HEAP_BLOCK = 32 * 2**20
"""glibc's `malloc` may put smaller blocks on its heap; it maps and returns larger ones."""

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
    """The step of a rank: examples of its batch, rows of a micro-batch, micro-batches, tokens."""

    batch: int
    rows: int
    passes: int
    length: int


def work(layout: HardwareLayout, batch_size: int, length: int) -> Work:
    """Return the step of a rank on texts of `length` tokens."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // length))
    return Work(batch, rows, ceil(batch / rows), length)


@dataclass(frozen=True)
class Activations:
    """Bytes of a micro-batch, without weights, gradients and optimizer state.

    Args:
        saved: what the forward pass keeps for the backward pass.
        peak: the most at once.
        small: the part of `peak` in blocks under `HEAP_BLOCK`.
    """

    saved: float
    peak: float
    small: float


Tensors = list[tuple[float, float]]
"""Numbers of tensors, and the bytes of one."""


def activations(
    sizes: Sizes, counts: Parameters, layout: HardwareLayout, step: Work
) -> Activations:
    """Return the bytes of a micro-batch.

    A frozen linear map keeps nothing, but what follows it keeps its output: attention its queries,
    keys and values, a norm the sum of the residual stream, an activation function its input. A
    learned map also keeps its input. Recomputing keeps one hidden state a layer, and all of one
    layer at a time.

    Raises:
        UserError: model parallelism does not divide the heads or the feed-forward width, or the
            backbone is quantized.
    """
    for name, size in (("number of heads", sizes.heads), ("feed-forward width", sizes.inner)):
        if size % layout.model_parallel:
            raise UserError(
                f"hardware.model_parallel is {layout.model_parallel}, but the backbone's {name} is "
                f"{size}. Use a divisor, such as 1, 2, 4 or 8."
            )
    if layout.quantization != "none" and layout.model_parallel > 1:
        raise UserError(
            f"hardware.quantization={layout.quantization} cannot be divided. Use "
            "hardware.model_parallel=1."
        )
    casts = counts.tunes and layout.precision != "fp32" and not layout.zero
    tokens = step.rows * (step.length + sizes.prompt)
    keys = step.length + sizes.prompt + sizes.prefix
    layer = _layer(sizes, counts, layout, tokens, keys)
    prefix = (1.0, step.rows * sizes.prefix * sizes.keys / layout.model_parallel * layout.width)
    wide = tokens * sizes.inner / layout.model_parallel * layout.width
    backward = [(3.3 if sizes.extra or sizes.gated else 1.5, wide)]  # measured
    # a layer of the decoder keeps the keys and values of the text, and two attentions
    answers = _layer(sizes, counts, layout, step.rows * sizes.answers, sizes.answers)
    cross = (1.0, tokens * sizes.keys / layout.model_parallel * layout.width)
    stacks = [(sizes.layers, [*layer, prefix]), (sizes.decoder_layers, [*answers, cross, prefix])]
    if layout.checkpointing:
        backward += layer
        state = (1.0, tokens * sizes.hidden * (FP32 if casts else layout.width))
        stacks = [(sizes.layers, [state, prefix]), (sizes.decoder_layers, [prefix])]
    if not counts.learned["total"]:
        stacks = []
    forward = [(layers * number, size) for layers, parts in stacks for number, size in parts]
    logits = step.rows * sizes.reads * sizes.vocabulary * FP32
    saved = _sum(forward) + logits + 2 * counts.quantizable * casts
    passing = max(_sum(backward) + logits, FP32 * counts.largest * counts.tunes)
    small = _sum([(number, size) for number, size in forward + backward if size < HEAP_BLOCK])
    return Activations(saved, saved + passing, small)


def _layer(
    sizes: Sizes, counts: Parameters, layout: HardwareLayout, tokens: int, keys: int
) -> Tensors:
    """Return what a layer keeps of `tokens` that attend to `keys`."""
    ranks, width = layout.model_parallel, layout.width
    of_sums = FP32 if sizes.plain_norms or (counts.tunes and not layout.zero) else width
    hidden, inner, scores = (tokens * n for n in (sizes.hidden, sizes.inner, sizes.heads))
    tensors = [
        (2, hidden * of_sums),  # what the two norms read
        ((2 * sizes.queries + sizes.keys) / sizes.hidden / ranks, hidden * width),  # of attention
        (1 + 2 * sizes.gated + sizes.extra, inner / ranks * width),  # of the feed-forward part
        (sizes.normed / sizes.hidden / ranks, hidden * FP32),
        (sizes.adapters / sizes.hidden, hidden * FP32),
        (2 * sizes.dropout, hidden),  # masks of bytes
        (3, scores * sizes.distances / ranks * width),
    ]
    biased = counts.tunes and sizes.plain_norms and sizes.decoder_layers  # T5: no kernel for it
    if sizes.dropout and (layout.device == "cpu" or sizes.distances or biased):
        cell = FP32 if biased else width
        tensors.append((2.25, scores * keys / ranks * cell))  # twice, and a mask of bytes
    if counts.tunes:  # the inputs of the maps, and what norms multiply
        normed = of_sums * sizes.plain_norms
        tensors += [(2, hidden * (width + normed)), (1, inner / ranks * width)]
        tensors.append((sizes.normed / sizes.hidden / ranks, hidden * normed))
    return tensors


def _sum(tensors: Tensors) -> float:
    return sum(number * size for number, size in tensors)


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
        writing: the cache and logits of texts that are written; they exist between steps.
    """

    weights: float
    gradients: float
    optimizer: float
    best: float
    activations: float
    spare: float
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
    sizes: Sizes, counts: Parameters, layout: HardwareLayout, step: Work, answer: int = 0
) -> Memory:
    """Return the estimated memory of a rank.

    `layout` has the precision, quantization, checkpointing and division, `step` the batch and the
    length of texts. `benchmarks/plan_memory.py` compares it with measured runs.

    Args:
        sizes: the sizes of method and backbone.
        counts: their parameters.
        layout: the engine.
        step: rows and tokens of a micro-batch.
        answer: tokens of a text that is written, for its cache.

    Raises:
        UserError: model parallelism does not divide the backbone.
    """
    micro_batch = activations(sizes, counts, layout, step)
    # plain torch keeps a tuned backbone in fp32
    width = FP32 if counts.tunes and not layout.zero else layout.width
    held = _on_rank(counts.held, counts.divided, layout) * width
    if layout.quantization != "none":
        held -= counts.quantizable * (layout.width - QUANTIZED_BYTES[layout.quantization])
    beside = counts.learned["prompt"] + counts.learned["head"] + counts.frozen_beside
    learned = _on_rank(counts.learned["total"], counts.learned_divided, layout)
    kind = width if counts.tunes else FP32
    gradients = (FP32 if layout.zero else kind) * learned  # DeepSpeed accumulates in fp32
    optimizer = FP32 * MOMENTS * learned
    if layout.zero:  # with an fp32 master copy, all divided over its ranks
        optimizer = FP32 * (MOMENTS + 1) * learned / layout.data_parallel
    # In a single micro-batch, gradients grow while activations are freed.
    passing = micro_batch.peak
    if step.passes == 1:
        passing = max(micro_batch.peak - gradients, micro_batch.peak - micro_batch.saved)
    most = max(passing, _update(counts, layout, learned))
    if layout.device == "cuda":
        spare = CUDA_CONTEXT + CUDA_SPARE * most
    else:
        spare = CPU_WORKSPACE + HEAP_SPARE * min(micro_batch.small, most)
    return Memory(
        weights=held + FP32 * beside,
        gradients=gradients,
        optimizer=optimizer,
        best=kind * learned,
        activations=most,
        spare=spare,
        writing=_writing(sizes, layout, step.length + answer) if answer else 0.0,
    )


def _on_rank(total: int, divided: int, layout: HardwareLayout) -> float:
    """Return the numbers on a rank if model parallelism divides some of them."""
    return total - divided + divided / layout.model_parallel


def _update(counts: Parameters, layout: HardwareLayout, learned: float) -> float:
    """Return the temporary bytes of the update.

    On CUDA torch updates all tensors together, with a square root of each; on a CPU one by one.
    DeepSpeed has the fp32 gradients of its share, and a bucket.
    """
    if layout.zero:
        bucket = FP32 * min(learned, ZERO_BUCKET)
        return FP32 * learned / layout.data_parallel + bucket
    return FP32 * (learned if layout.device == "cuda" else 2 * counts.largest)


def _writing(sizes: Sizes, layout: HardwareLayout, length: int) -> float:
    """Return the bytes of texts that are written together: their cache, and two logits each.

    The cache of an encoder-decoder also has the text's tokens, for cross-attention.
    """
    rows = max(1, layout.token_budget // length)
    cached = length * (sizes.decoder_layers or sizes.layers) * sizes.keys * layout.width
    return rows * (cached / layout.model_parallel + 2 * sizes.vocabulary * FP32)


def per_member(counts: Parameters) -> float:
    """Return the bytes that one more member of a population adds."""
    return counts.learned["total"] * PER_NUMBER


def files(counts: Parameters) -> dict[str, float]:
    """Return the sizes of a run's files: its prompt and its saved state."""
    state = counts.learned["total"] * FP32 * (2 + MOMENTS)
    return {"prompt.safetensors": counts.exported, "state.safetensors": state}


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
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    devices = [Device("CPU memory", "cpu", total, free("cpu"))]
    for index in range(torch.cuda.device_count()):
        unused, total = torch.cuda.mem_get_info(index)
        name = f"cuda:{index} {torch.cuda.get_device_name(index)}"
        devices.append(Device(name, "cuda", total, unused))
    if device_gib is not None:
        size = int(device_gib * GIB)
        devices.append(Device(f"a device of {device_gib:g} GiB", "cuda", size, size))
    return devices
