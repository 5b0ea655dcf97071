"""The memory of one rank in training, by a formula of sizes: no weights and no data are read."""

import os
import re
from dataclasses import dataclass
from math import ceil, inf
from typing import Literal, NamedTuple

import torch
from torch import nn

from ptrun.backbone.pretrained import sizes as widths
from ptrun.backbone.quantization import BYTES as QUANTIZED_BYTES
from ptrun.backbone.tensor_parallel import cuts_of
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
        self._backbone, self._learned = backbone, {id(p) for p in learned.values()}
        self._weights = {n: p for n, p in backbone.model.named_parameters() if "adapter" not in n}
        self.learned = method.learned_parameters()  # by part as in a result, and `total`
        self.frozen_beside = sum(b.numel() for b in method.buffers())  # of method and head
        self.total = {  # by part; the backbone's is its published size
            "prompt": self.learned["prompt"] + self.frozen_beside,
            "head": self.learned["head"],
            "backbone": backbone.size(),
        }
        self.tunes = method.tunes_backbone
        # of the backbone in memory, with output head and pooler
        self.held = sum({id(p): p.numel() for p in self._weights.values()}.values())
        # of the linear maps of the layers
        self.quantizable = sum({id(m.weight): m.weight.numel() for m in maps.values()}.values())
        self.largest = max((p.numel() for p in learned.values()), default=0)  # learned tensor
        # bytes of the tensors that prediction needs
        self.exported = sum(t.numel() * t.element_size() for t in method.exported().values())
        # 2. Widths of the layers; the decoder's are counted apart
        self.layers, self.decoder_layers = shape.layers, shape.decoder_layers
        self.hidden, self.vocabulary = shape.hidden_size, int(config.vocab_size)
        self.heads: int = getattr(config, "num_attention_heads", 0) or 0
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
        self.dropout = shape.dropout > 0
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
        self.answer, self.answers = answer, answer or _DECODER_TOKENS

    def divided(self, parts: int) -> tuple[int, int]:
        """Return the numbers of the backbone that `parts` ranks divide, and the learned of them."""
        if parts == 1:
            return 0, 0
        cuts = cuts_of(self._backbone.model, self._backbone.architecture, parts)
        cut = [p for n, p in self._weights.items() if cuts[n].axis is not None]
        return sum(p.numel() for p in cut), sum(p.numel() for p in cut if id(p) in self._learned)

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


# The formula.

FP32 = 4
MOMENTS = 2
"""AdamW's moving averages of gradients and of their squares, both fp32."""
LIBRARIES = {"cuda": (640 * 2**20, 0.05, inf), "cpu": (48 * 2**20, 0.4, 2**29)}
"""Bytes of the libraries, and spare memory of the allocator: a share of activations, and its most.
On a GPU that is an allowance for the driver, cuBLAS and torch's cache. On a CPU it is the matrix
library and the heap, from the measured runs of `benchmarks/plan_memory.py`."""


def micro_batches(layout: HardwareLayout, batch_size: int, window: int) -> tuple[int, int]:
    """Return the rows of a rank's micro-batch, and the micro-batches of its step."""
    batch = ceil(batch_size / layout.data_parallel)
    rows = min(batch, max(1, layout.token_budget // window))
    return rows, ceil(batch / rows)


class Memory(NamedTuple):
    """Bytes on one rank: those between steps, those of a step, and those of the libraries.

    `learned` is gradients, moments and the best tensors so far; `writing` is the cache of texts
    that are written between steps.
    """

    weights: float
    learned: float
    activations: float
    writing: float
    libraries: float

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        step = max(self.activations, self.writing)
        return self.weights + self.learned + step + self.libraries


def memory(sizes: Sizes, layout: HardwareLayout, batch_size: int, window: int) -> Memory:
    """Return the memory of a rank that learns from batches of texts of `window` tokens.

    `benchmarks/plan_memory.py` compares it with measured runs.
    """
    parallel, tunes = layout.parallel, sizes.tunes
    divided, learned_divided = sizes.divided(parallel)
    # 1. Weights of the backbone and the method; plain torch keeps a tuned backbone in fp32
    width = FP32 if tunes and not layout.divides else layout.width
    weights = (sizes.held - divided + divided / parallel) * width
    if layout.quantization != "none":
        if parallel > 1:
            raise UserError(
                f"hardware.quantization={layout.quantization} cannot be divided. Use "
                "hardware.model_parallel=1."
            )
        weights -= sizes.quantizable * (layout.width - QUANTIZED_BYTES[layout.quantization])
    weights += FP32 * (sizes.learned["prompt"] + sizes.learned["head"] + sizes.frozen_beside)
    # 2. What is learned: gradients, moments, the best tensors so far, and the update of a step.
    # DeepSpeed sums gradients in fp32; its ranks divide the moments and an fp32 copy
    count = sizes.learned["total"] - learned_divided + learned_divided / parallel
    best = (width if tunes else FP32) * count
    gradients = FP32 * count if layout.divides else best
    optimizer, update = FP32 * MOMENTS * count, FP32 * count
    if layout.divides:
        optimizer = FP32 * (MOMENTS + 1) * count / layout.data_parallel
    elif layout.device == "cpu":  # one tensor after another; a GPU updates all together
        update = FP32 * 2 * sizes.largest
    # 3. A step: activations, minus the gradients that do not exist yet at that moment, or the
    # update; in a single micro-batch, gradients grow while activations are freed
    rows, passes = micro_batches(layout, batch_size, window)
    saved, backward = activations(sizes, layout, rows, window)
    early = min(gradients, saved) if passes == 1 else 0
    step = max(saved + backward - early, update)
    # 4. Between steps, texts that are written: a cache, also of the text for cross-attention, and
    # two logits of each
    length = window + sizes.answer
    cached = length * (sizes.decoder_layers or sizes.layers) * sizes.keys * layout.width / parallel
    logits = 2 * sizes.vocabulary * FP32
    writing = max(1, layout.token_budget // length) * (cached + logits) if sizes.answer else 0.0
    # 5. The libraries of the device and the spare memory of its allocator
    fixed, share, most = LIBRARIES[layout.device]
    libraries = fixed + min(share * step, most)
    return Memory(weights, gradients + optimizer + best, step, writing, libraries)


def activations(
    sizes: Sizes, layout: HardwareLayout, rows: int, window: int
) -> tuple[float, float]:
    """Return the bytes that the backward pass of `rows` texts needs, and those that it adds.

    Recomputing (`checkpointing`) keeps one hidden state a layer, and all of one layer at a time.
    """
    parallel, width, tokens = layout.parallel, layout.width, rows * (window + sizes.prompt)
    casts = sizes.tunes and layout.precision != "fp32" and not layout.divides
    layer = tokens * _per_token(sizes, layout, window + sizes.prompt + sizes.prefix)
    backward = (
        tokens * sizes.inner / parallel * width * (3.3 if sizes.extra or sizes.gated else 1.5)
    )
    # a layer of the decoder keeps the keys and values of the text, and two attentions
    decoder = rows * sizes.answers * _per_token(sizes, layout, sizes.answers)
    decoder += tokens * sizes.keys / parallel * width
    if layout.checkpointing:
        backward += layer
        layer, decoder = tokens * sizes.hidden * (FP32 if casts else width), 0.0
    prefix = rows * sizes.prefix * sizes.keys / parallel * width
    logits = rows * sizes.reads * sizes.vocabulary * FP32
    saved = sizes.layers * (layer + prefix) + sizes.decoder_layers * (decoder + prefix)
    saved *= bool(sizes.learned["total"])
    backward = max(backward + logits, FP32 * sizes.largest * sizes.tunes)
    return saved + logits + 2 * sizes.quantizable * casts, backward


def _per_token(sizes: Sizes, layout: HardwareLayout, keys: int) -> float:
    """Return the bytes that a layer keeps of a token which attends to `keys` tokens.

    A frozen linear map keeps nothing, but what follows it keeps its output: attention its queries,
    keys and values, a norm the sum of the residual stream, an activation function its input. A
    learned map also keeps its input, and a norm what it multiplies.
    """
    width, tunes = layout.width, sizes.tunes
    sums = FP32 if sizes.plain_norms or (tunes and not layout.divides) else width
    shared: float = 2 * sizes.hidden * (sums + tunes * (width + sums * sizes.plain_norms))
    shared += FP32 * sizes.adapters
    divided: float = width * (2 * sizes.queries + sizes.keys)
    divided += width * sizes.inner * (1 + 2 * sizes.gated + sizes.extra + tunes)
    divided += sizes.normed * (FP32 + tunes * sums * sizes.plain_norms)
    # Without a kernel, attention keeps scores: on a CPU with dropout, in DeBERTa, in a tuned T5
    divided += 3 * width * sizes.heads * sizes.distances
    biased = tunes and sizes.plain_norms and sizes.decoder_layers
    if sizes.dropout and (layout.device == "cpu" or sizes.distances or biased):
        divided += 2.25 * sizes.heads * keys * (FP32 if biased else width)  # and a mask of bytes
    return shared + divided / layout.parallel


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


_OFFERED = 0.92  # of a card's memory: error correction takes up to 1/16, the driver more


def card(gib: float) -> Device:
    """Return a card of `gib` GiB by its name, and what it offers of them."""
    size = int(gib * GIB)
    return Device(f"{gib:g} GiB", "cuda", size, int(_OFFERED * size))


def devices_here(device_gib: float | None) -> list[Device]:
    """Return this machine's memory, its CUDA devices, and a card of `device_gib` GiB."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    devices = [Device("CPU memory", "cpu", total, free("cpu"))]
    for index in range(torch.cuda.device_count()):
        unused, total = torch.cuda.mem_get_info(index)
        name = f"cuda:{index} {torch.cuda.get_device_name(index)}"
        devices.append(Device(name, "cuda", total, unused))
    return [*devices, card(device_gib)] if device_gib is not None else devices
