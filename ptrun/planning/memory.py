"""The memory of one rank in training, estimated by a formula from sizes alone."""

import os
import re
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import torch
from torch import nn

from ptrun.backbone.pretrained import sizes as widths
from ptrun.backbone.quantization import BYTES as QUANTIZED_BYTES
from ptrun.config.compose import Composed
from ptrun.config.schema import HardwareConfig
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


def layout_of(run: Composed, *, elsewhere: bool = False) -> HardwareLayout:
    """Return the layout of a run's engine; `device: auto` is `cuda` on a machine `elsewhere`."""
    config, device, visible = run.hardware, run.hardware.device, torch.cuda.device_count()
    if device == "auto":
        device = "cuda" if elsewhere or visible else "cpu"
    gpus = visible if config.divides and device == "cuda" else 0
    resolved_keys = {
        "device": device,
        "precision": resolved(config.precision, config.device, run.dtype),
        "ranks": config.ranks or max(gpus, config.model_parallel or 1),
    }
    return HardwareLayout(**vars(config) | resolved_keys, option=run.names["hardware"])


# The sizes of a run that decide memory and arithmetic.

_LAYER = re.compile(r"(.*?)\.(\d+)\.")
_UNTIED_OUTPUT = "lm_head.weight"
_FUSED_ACTIVATIONS = ("relu", "gelu", "silu", "swish", "gelu_pytorch_tanh")
_ACTIVATION = ("hidden_act", "activation_function", "dense_act_fn", "hidden_activation")
_DECODER_TOKENS = 3  # that a decoder reads for a one-word target: its start, a sentinel, the word


class Sizes:
    """The sizes of a method that writes `answer` tokens, and of its backbone, without weights."""

    def __init__(self, method: Method, answer: int = 0):
        backbone, learned, readout = method.backbone, method.learned(), method.readout
        shape, config, family = backbone.shape, backbone.model.config, backbone.architecture
        modules, maps = dict(backbone.model.named_modules()), backbone.linear_maps()
        # 1. Numbers; adapters of PEFT lie in the backbone's modules, but are the method's
        weights = {n: p for n, p in backbone.model.named_parameters() if "adapter" not in n}
        divided = {id(p): p.numel() for n, p in weights.items() if _divided(n, p)}
        self.learned = method.learned_parameters()  # by part as in a result, and `total`
        self.frozen_beside = sum(b.numel() for b in method.buffers())  # of method and head
        self.total = {  # by part; the backbone's is its published size
            "prompt": self.learned["prompt"] + self.frozen_beside,
            "head": self.learned["head"],
            "backbone": backbone.size(),
        }
        self.tunes = method.tunes_backbone
        # of the backbone in memory, with output head and pooler
        self.held: int = sum({id(p): p.numel() for p in weights.values()}.values())
        # of the linear maps of the layers
        self.quantizable: int = sum(
            {id(m.weight): m.weight.numel() for m in maps.values()}.values()
        )
        # of what model parallelism divides, and what of that is learned
        self.divided: int = sum(divided.values())
        self.learned_divided: int = sum(divided.get(id(p), 0) for p in learned.values())
        self.largest = max((p.numel() for p in learned.values()), default=0)  # learned tensor
        # bytes of the tensors that prediction needs
        self.exported = sum(t.numel() * t.element_size() for t in method.exported().values())
        # 2. Widths of the layers; the decoder's are counted apart
        self.layers, self.decoder_layers = shape.layers, shape.decoder_layers
        self.hidden, self.vocabulary = shape.hidden_size, int(config.vocab_size)
        self.heads: int = config.num_attention_heads
        self.queries: int = self.heads * shape.head_size  # of a token
        self.keys: int = 2 * shape.heads * shape.head_size  # keys and values of a token
        # of the maps in the first layer, the last of the feed-forward part has the widest input;
        # if it is gated, a second map of that width multiplies the first
        layer = next(match[0] for name in maps if (match := _LAYER.match(name)))
        pairs = [widths(module) for name, module in maps.items() if name.startswith(layer)]
        self.inner: int = max(inputs for inputs, _ in pairs)
        wide = sum(outputs for _, outputs in pairs if outputs >= self.inner)
        self.gated = wide >= 2 * self.inner
        if family.fused:  # experts are no linear maps; a token passes some of them
            wide = int(getattr(config, "moe_intermediate_size", None) or config.intermediate_size)
            self.inner, self.gated = int(config.num_experts_per_tok) * wide, True
        names = (getattr(config, key) for key in _ACTIVATION if hasattr(config, key))
        # tensors of that width that the activation keeps beside its input
        self.extra = 0 if next(names, "gelu") in _FUSED_ACTIVATIONS else 3
        # RMS norms are computed in fp32 by single operations; queries and keys may have their own
        self.plain_norms = not any(isinstance(module, nn.LayerNorm) for module in modules.values())
        has_own = any(name.endswith("q_norm") for name in modules)
        self.normed = (self.queries + self.keys // 2) * has_own
        self.dropout = shape.dropout > 0  # of hidden states and attention weights
        self.distances = 512 if family.position_maps else 0  # scores of a query, in DeBERTa
        # 3. What the method adds: vectors in the input or in each layer, inputs of learned maps
        prefixes = [module for module in method.modules() if isinstance(module, DeepPrefix)]
        self.prompt: int = 0 if prefixes else method.prompt_positions
        self.prefix = len(prefixes[0]()) if prefixes else 0
        adapts = (method.changes_maps or method.changes_modules) and not self.tunes
        matrices = [p for p in learned.values() if p.dim() == 2 and adapts]  # two an adapter
        self.adapters = sum(max(matrix.shape) for matrix in matrices) / 2 / shape.layers
        # tokens of a text whose logits are computed, and tokens that the decoder reads
        self.reads = answer if readout.writes else int(readout.pattern is not None)
        self.answers = answer or _DECODER_TOKENS

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
        (2 * (sizes.dropout and layout.device == "cpu"), hidden),  # masks of bytes
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


class Memory:
    """Bytes on one rank, as an estimate; with `answer`, texts of so many tokens are written.

    `benchmarks/plan_memory.py` compares it with measured runs.

    Raises:
        UserError: model parallelism does not divide the backbone.
    """

    def __init__(self, sizes: Sizes, layout: HardwareLayout, step: Work, answer: int = 0):
        micro_batch = activations(sizes, layout, step)
        parallel = layout.parallel
        # 1. Weights of the backbone and the method; plain torch keeps a tuned backbone in fp32
        width = FP32 if sizes.tunes and not layout.divides else layout.width
        self.weights: float = (sizes.held - sizes.divided + sizes.divided / parallel) * width
        if layout.quantization != "none":
            self.weights -= sizes.quantizable * (
                layout.width - QUANTIZED_BYTES[layout.quantization]
            )
        self.weights += FP32 * (
            sizes.learned["prompt"] + sizes.learned["head"] + sizes.frozen_beside
        )
        # 2. What is learned: gradients, moments and master weights, the best tensors so far
        learned = sizes.learned["total"] - sizes.learned_divided + sizes.learned_divided / parallel
        kind = width if sizes.tunes else FP32
        self.gradients = (FP32 if layout.divides else kind) * learned  # DeepSpeed's sums are fp32
        if layout.divides:  # DeepSpeed divides the moments, an fp32 copy and its gradients
            share = FP32 * learned / layout.data_parallel
            self.optimizer = (MOMENTS + 1) * share
            update = share + FP32 * min(learned, ZERO_BUCKET)
        else:  # on CUDA all tensors are updated together, with a square root of each
            self.optimizer = FP32 * MOMENTS * learned
            update = FP32 * (learned if layout.device == "cuda" else 2 * sizes.largest)
        self.best = kind * learned
        # 3. The other peak of a step: activations, minus the gradients that do not exist yet at
        # that moment, or the update; in a single micro-batch, gradients grow while they are freed
        passing = micro_batch.peak
        if step.passes == 1:
            passing -= min(self.gradients, micro_batch.saved)
        self.activations = max(passing, update)
        # 4. The overhead of the allocator and the device's libraries
        if layout.device == "cuda":
            self.spare = CUDA_CONTEXT + CUDA_SPARE * self.activations
        else:
            self.spare = CPU_WORKSPACE + HEAP_SPARE * min(micro_batch.small, self.activations)
        # 5. Between steps, texts that are written: a cache, also of the text for cross-attention,
        # and two logits of each
        self.writing = 0.0
        if answer:
            length = step.length + answer
            cached = length * (sizes.decoder_layers or sizes.layers) * sizes.keys * layout.width
            rows = max(1, layout.token_budget // length)
            self.writing = rows * (cached / parallel + 2 * sizes.vocabulary * FP32)

    @property
    def standing(self) -> float:
        """Bytes between steps."""
        return self.weights + self.gradients + self.optimizer + self.best

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        return self.standing + max(self.activations, self.writing) + self.spare


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
