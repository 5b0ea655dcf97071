"""The memory of one rank in training, estimated by a formula from sizes alone."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import torch
from torch import nn

from ptrun.backbone.pretrained import linear_maps
from ptrun.backbone.pretrained import sizes as widths
from ptrun.backbone.quantization import BYTES as QUANTIZED_BYTES
from ptrun.config.schema import HardwareConfig, Precision
from ptrun.errors import UserError
from ptrun.hardware.device import PER_NUMBER, free, resolved
from ptrun.method.base import Method
from ptrun.prompt import DeepPrefix

# The parts of an engine option that decide memory: device, precision and division.

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True)
class HardwareLayout(HardwareConfig):
    """An option of `hardware` on a machine: its device, its precision and its ranks are known."""

    option: str = ""
    ranks: int = 1

    @property
    def parallel(self) -> int:
        """The number of ranks that divide the matrices of the layers."""
        return self.model_parallel or 1

    @property
    def data_parallel(self) -> int:
        """The number of copies of the backbone that share a batch; they divide the optimizer."""
        return max(1, self.ranks // self.parallel)

    @property
    def sharing(self) -> int:
        """The number of ranks that share a device: all of them on a CPU, one on a CUDA device."""
        return self.ranks if self.device == "cpu" else 1

    @property
    def width(self) -> int:
        """Bytes per number of a frozen backbone."""
        return BYTES[self.precision]

    @property
    def title(self) -> str:
        """The title in a table."""
        shared = f", {self.parallel} x {self.data_parallel} ranks" if self.ranks > 1 else ""
        held = "" if self.quantization == "none" else f", {self.quantization}"
        return f"{self.option} ({self.device}, {self.precision}{held}{shared})"


def layout_of(
    option: str, config: HardwareConfig, dtype: Precision, *, elsewhere: bool
) -> HardwareLayout:
    """Return the layout of an option's configuration over a backbone with this `dtype`.

    If it is for a machine `elsewhere`, `device: auto` is `cuda`.
    """
    visible = torch.cuda.device_count()
    device = config.device
    if device == "auto":
        device = "cuda" if elsewhere or visible else "cpu"
    gpus = visible if config.divides and device == "cuda" else 0
    typed = {
        "device": device,
        "precision": resolved(config.precision, config.device, dtype),
        "ranks": config.ranks or max(gpus, config.model_parallel or 1),
    }
    return HardwareLayout(**vars(config) | typed, option=option)


# The sizes of a run that decide memory and arithmetic.

_LAYER = re.compile(r"(.*?)\.(\d+)\.")
_UNTIED_OUTPUT = "lm_head.weight"
_FUSED_ACTIVATIONS = ("relu", "gelu", "silu", "swish", "gelu_pytorch_tanh")
_ACTIVATION = ("hidden_act", "activation_function", "dense_act_fn", "hidden_activation")
_DECODER_TOKENS = 3  # that a decoder reads for a one-word target: its start, a sentinel, the word


@dataclass(frozen=True)
class Sizes:
    """The sizes of a method and its backbone.

    Args:
        learned: learned parameters by part as in a result, and `total`.
        total: all parameters by part; the backbone's is its published size.
        held: numbers of the backbone in memory, with output head and pooler.
        quantizable: the held numbers of the linear maps of the layers.
        divided, learned_divided: held and learned numbers that model parallelism divides.
        largest: numbers of the largest learned tensor.
        exported: bytes of the tensors that prediction needs.
        tunes: whether the backbone is learned.
        frozen_beside: frozen numbers of method and head.
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
    plain_norms: bool
    normed: int
    dropout: bool
    distances: int
    prompt: int
    prefix: int
    adapters: float
    reads: int
    answers: int

    @property
    def files(self) -> dict[str, int]:
        """The bytes of a run's files: its prompt and its saved state."""
        state = self.learned["total"] * FP32 * (2 + MOMENTS)
        return {"prompt.safetensors": self.exported, "state.safetensors": state}

    @property
    def member(self) -> int:
        """The bytes that one more member of a population adds."""
        return self.learned["total"] * PER_NUMBER

    def operations(self, length: int) -> float:
        """Return the floating-point operations of a forward pass over a text of `length` tokens.

        Of the few tokens that a decoder reads, keys and values alone count.
        """
        layer = self.hidden * (2 * self.queries + self.keys + self.inner * (2 + self.gated))
        products = self.layers * layer + self.decoder_layers * self.hidden * self.keys
        tokens = length + self.prompt
        scores = 4 * tokens * (tokens + self.prefix) * self.queries * self.layers
        return 2 * tokens * products + scores + 2 * self.hidden * self.vocabulary * self.reads


def sizes(method: Method, answer: int = 0) -> Sizes:
    """Return the sizes of a method that writes `answer` tokens; it may be on the meta device."""
    backbone, readout, learned = method.backbone, method.readout, method.learned()
    shape, config, family = backbone.shape, backbone.model.config, backbone.architecture
    modules = dict(backbone.model.named_modules())
    # 1. Parameters; adapters of PEFT lie in the backbone's modules, but are the method's
    counts, beside = method.learned_parameters(), sum(b.numel() for b in method.buffers())
    weights = {name: p for name, p in backbone.model.named_parameters() if "adapter" not in name}
    divided = {id(p): p.numel() for name, p in weights.items() if _divided(name, p)}
    maps = linear_maps(backbone)
    # 2. Of the maps in the first layer, the last of the feed-forward part has the widest input
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
    # 3. What the method adds; an adapter is two matrices
    prefixes = [module for module in method.modules() if isinstance(module, DeepPrefix)]
    adapts = (method.changes_maps or method.changes_modules) and not method.tunes_backbone
    matrices = [p for p in learned.values() if p.dim() == 2 and adapts]
    return Sizes(
        learned=counts,
        total={
            "prompt": counts["prompt"] + beside,
            "head": counts["head"],
            "backbone": backbone.size(),
        },
        held=sum({id(p): p.numel() for p in weights.values()}.values()),
        quantizable=sum({id(m.weight): m.weight.numel() for m in maps.values()}.values()),
        divided=sum(divided.values()),
        learned_divided=sum(divided.get(id(p), 0) for p in learned.values()),
        largest=max((p.numel() for p in learned.values()), default=0),
        exported=sum(t.numel() * t.element_size() for t in method.exported().values()),
        tunes=method.tunes_backbone,
        frozen_beside=beside,
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


def _divided(name: str, parameter: nn.Parameter) -> bool:
    """Return whether model parallelism divides a parameter: matrices of layers, an untied output.

    Embeddings, norms and the table of relative positions are whole on every rank.
    """
    layer = _LAYER.match(name) and parameter.dim() == 2 and "relative" not in name
    return bool(layer) or name == _UNTIED_OUTPUT


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


class Work(NamedTuple):
    """The step of a rank: rows of a micro-batch, micro-batches, and tokens of a text."""

    rows: int
    passes: int
    length: int


def work(layout: HardwareLayout, batch_size: int, length: int) -> Work:
    """Return the step of a rank on texts of `length` tokens."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // length))
    return Work(rows, ceil(batch / rows), length)


class Activations(NamedTuple):
    """Bytes of a micro-batch, without weights, gradients and optimizer state.

    The backward pass needs what is `saved`; `peak` is the most at once, of which `small` is in
    blocks under `HEAP_BLOCK`.
    """

    saved: float
    peak: float
    small: float


Tensors = list[tuple[float, float]]
"""Numbers of tensors, and the bytes of one."""


def activations(sizes: Sizes, layout: HardwareLayout, step: Work) -> Activations:
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
        if size % layout.parallel:
            raise UserError(
                f"hardware.model_parallel is {layout.model_parallel}, but the backbone's {name} is "
                f"{size}. Use a divisor, such as 1, 2, 4 or 8."
            )
    if layout.quantization != "none" and layout.parallel > 1:
        raise UserError(
            f"hardware.quantization={layout.quantization} cannot be divided. Use "
            "hardware.model_parallel=1."
        )
    casts = sizes.tunes and layout.precision != "fp32" and not layout.divides
    tokens = step.rows * (step.length + sizes.prompt)
    layer = _layer(sizes, layout, tokens, step.length + sizes.prompt + sizes.prefix)
    prefix = (1.0, step.rows * sizes.prefix * sizes.keys / layout.parallel * layout.width)
    wide = tokens * sizes.inner / layout.parallel * layout.width
    backward = [(3.3 if sizes.extra or sizes.gated else 1.5, wide)]  # measured
    # a layer of the decoder keeps the keys and values of the text, and two attentions
    answers = _layer(sizes, layout, step.rows * sizes.answers, sizes.answers)
    cross = (1.0, tokens * sizes.keys / layout.parallel * layout.width)
    stacks = [(sizes.layers, [*layer, prefix]), (sizes.decoder_layers, [*answers, cross, prefix])]
    if layout.checkpointing:
        backward += layer
        state = (1.0, tokens * sizes.hidden * (FP32 if casts else layout.width))
        stacks = [(sizes.layers, [state, prefix]), (sizes.decoder_layers, [prefix])]
    if not sizes.learned["total"]:
        stacks = []
    forward = [(layers * number, size) for layers, parts in stacks for number, size in parts]
    logits = step.rows * sizes.reads * sizes.vocabulary * FP32
    saved = _sum(forward) + logits + 2 * sizes.quantizable * casts
    passing = max(_sum(backward) + logits, FP32 * sizes.largest * sizes.tunes)
    small = _sum([(number, size) for number, size in forward + backward if size < HEAP_BLOCK])
    return Activations(saved, saved + passing, small)


def _layer(sizes: Sizes, layout: HardwareLayout, tokens: int, keys: int) -> Tensors:
    """Return what a layer keeps of `tokens` that attend to `keys`."""
    ranks, width = layout.parallel, layout.width
    of_sums = FP32 if sizes.plain_norms or (sizes.tunes and not layout.divides) else width
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
    biased = sizes.tunes and sizes.plain_norms and sizes.decoder_layers  # T5: no kernel for it
    if sizes.dropout and (layout.device == "cpu" or sizes.distances or biased):
        cell = FP32 if biased else width
        tensors.append((2.25, scores * keys / ranks * cell))  # twice, and a mask of bytes
    if sizes.tunes:  # the inputs of the maps, and what norms multiply
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


def memory(sizes: Sizes, layout: HardwareLayout, step: Work, answer: int = 0) -> Memory:
    """Return the estimated memory of a rank; with `answer`, texts of so many tokens are written.

    `benchmarks/plan_memory.py` compares it with measured runs.

    Raises:
        UserError: model parallelism does not divide the backbone.
    """
    micro_batch = activations(sizes, layout, step)
    parallel = layout.parallel
    # 1. Weights; plain torch keeps a tuned backbone in fp32
    width = FP32 if sizes.tunes and not layout.divides else layout.width
    weights = (sizes.held - sizes.divided + sizes.divided / parallel) * width
    if layout.quantization != "none":
        weights -= sizes.quantizable * (layout.width - QUANTIZED_BYTES[layout.quantization])
    weights += FP32 * (sizes.learned["prompt"] + sizes.learned["head"] + sizes.frozen_beside)
    # 2. What is learned
    learned = sizes.learned["total"] - sizes.learned_divided + sizes.learned_divided / parallel
    kind = width if sizes.tunes else FP32
    gradients = (FP32 if layout.divides else kind) * learned  # DeepSpeed accumulates in fp32
    if layout.divides:  # DeepSpeed divides the moments, an fp32 copy and its gradients
        share = FP32 * learned / layout.data_parallel
        optimizer, update = (MOMENTS + 1) * share, share + FP32 * min(learned, ZERO_BUCKET)
    else:  # on CUDA all tensors are updated together, with a square root of each
        optimizer = FP32 * MOMENTS * learned
        update = FP32 * (learned if layout.device == "cuda" else 2 * sizes.largest)
    # 3. A step; in a single micro-batch, gradients grow while activations are freed
    passing = micro_batch.peak
    if step.passes == 1:
        passing = max(micro_batch.peak - gradients, micro_batch.peak - micro_batch.saved)
    most = max(passing, update)
    if layout.device == "cuda":
        spare = CUDA_CONTEXT + CUDA_SPARE * most
    else:
        spare = CPU_WORKSPACE + HEAP_SPARE * min(micro_batch.small, most)
    # 4. Writing: a cache, also of the text for cross-attention, and two logits of each text
    writing = 0.0
    if answer:
        length = step.length + answer
        cached = length * (sizes.decoder_layers or sizes.layers) * sizes.keys * layout.width
        rows = max(1, layout.token_budget // length)
        writing = rows * (cached / parallel + 2 * sizes.vocabulary * FP32)
    return Memory(weights, gradients, optimizer, kind * learned, most, spare, writing)


# The memory of each device of this machine, and of a requested one.

GIB = 2**30


class Device(NamedTuple):
    """A device with its total and free bytes."""

    name: str
    kind: Literal["cpu", "cuda"]
    total: int
    free: int

    @property
    def most(self) -> int:
        """The most bytes that a run may need; on a CPU, other programs may have to end first."""
        return self.free if self.kind == "cuda" else self.total

    def verdict(self, need: float) -> str:
        """Return whether `need` bytes fit, as text."""
        if need <= self.free:
            return "fits"
        if need <= self.most:
            return "fits if other programs end"
        return f"{(need - self.most) / GIB:.1f} GiB too much"


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
