"""Measure prompt tuning of T5-v1.1-XXL's shape on one device: speed, peak share, memory.

    python benchmarks/t5_xxl.py                    one CUDA device, 11.1B random weights in bf16
    python benchmarks/t5_xxl.py --small            a miniature, seconds on a CPU
    python benchmarks/t5_xxl.py --members 1 --batch 16 32 --quantization none int8 nf4

The encoder has 100 vectors and a text of 40 to 156 tokens, at most 256 together. The decoder has
two tokens; the second one predicts the answer, as in PPT. `--batch` is per member, and `--members`
share one copy of the model. Weights are made on the device. A step is one step of every
member. Writes results/t5_xxl.json, by shape and device.

FLOPs count matrix products, two per multiplication. A product with frozen weights runs once forward
and once backward, to its input. A product of two activations (attention) runs once forward and
twice backward. `recomputed` is the extra work of checkpointing; only `share_of_peak_recomputed`
includes it. Shares count computed tokens, with padding.
"""

import argparse
import gc
import json
import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
from running import arguments, keep, kept
from torch import nn
from torch.nn import functional

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.config.compose import compose_run
from ptrun.config.schema import Schedule, TrainConfig
from ptrun.errors import UserError
from ptrun.hardware.torch_engine import TorchEngine
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.readout.base import Features, TokenRow, WordReader
from ptrun.training.member import Member
from ptrun.types import Prediction

SMALL = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 160, "vocab_size": 500}
SMALL |= {"num_layers": 2, "num_decoder_layers": 2}
PROMPT, LONGEST, SHORTEST, DECODER = 100, 256, 140, 2
WARM = 1  # rounds that are not measured


class Words(WordReader, nn.Module):
    """A read-out over the whole vocabulary, without parameters."""

    def encode(self, examples, room):
        """Encode nothing: the rows are made here."""
        return []

    def loss(self, output, batch):
        """Return cross-entropy summed over targets."""
        return functional.cross_entropy(output.logits.float(), batch.targets, reduction="sum")

    def decode(self, output, batch):
        """Predict nothing: only speed is measured."""
        return [Prediction(features.id, None) for features in batch.features]


class Clock:
    """A journal that records the times of steps."""

    def __init__(self):
        self.times: list[float] = []

    def log(self, row):
        """Record the time of a step; the device has finished it by then."""
        if row["event"] == "step":
            self.times.append(time.perf_counter())

    def draft(self, tensors, meta):
        """Save nothing."""
        return lambda: None

    def restore(self):
        """Restore nothing."""


@dataclass
class Flops:
    """FLOPs of a forward pass, by what the backward pass repeats."""

    frozen: int = 0
    attention: int = 0
    layers: int = 0
    """The forward pass of all layers, which checkpointing recomputes."""

    @property
    def step(self) -> int:
        """FLOPs of the forward pass and of the backward pass to inputs."""
        return 2 * self.frozen + 3 * self.attention


def flops(config: dict[str, Any], passes: Sequence[tuple[int, int]]) -> Flops:
    """Return the FLOPs of passes, each (rows, encoder tokens per row)."""
    h, a, f = config["d_model"], config["num_heads"] * config["d_kv"], config["d_ff"]
    found, s = Flops(), DECODER
    for rows, t in passes:
        encoder = rows * t * (4 * h * a + 3 * h * f)
        decoder = rows * s * (6 * h * a + 3 * h * f) + rows * t * 2 * h * a
        frozen = config["num_layers"] * encoder + config["num_decoder_layers"] * decoder
        attention = config["num_layers"] * 2 * t * t + config["num_decoder_layers"] * 2 * s * (
            s + t
        )
        attention *= rows * a
        found.frozen += 2 * (frozen + rows * h * config["vocab_size"])
        found.attention += 2 * attention
        found.layers += 2 * (frozen + attention)
    return found


def type_on(device: str) -> torch.dtype:
    """Return the precision: bf16 on a GPU, fp32 in a miniature on a CPU."""
    return torch.bfloat16 if device == "cuda" else torch.float32


def backbone(config: dict[str, Any], device: str, quantization: str) -> PretrainedBackbone:
    """Return a model of this shape with random weights, made on the device."""
    made = PretrainedBackbone(name="t5_xxl_shape", config={**config, "dropout_rate": 0.0})
    made.quantize(quantization)
    model = made.model.to(type_on(device)).to_empty(device=device)
    for stack in (model.encoder, model.decoder):  # `to_empty` unties shared weights
        stack.embed_tokens.weight = model.shared.weight
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            attended = config["d_kv"] ** -0.5 if name.endswith(".q.weight") else 1.0
            own = "shared" in name or "relative" in name
            std = 1.0 if own else attended * weight.shape[1] ** -0.5
            if weight.is_meta:  # of a quantized map
                drawn = torch.randn(weight.shape, dtype=type_on(device), device=device) * std
                model.get_submodule(name.removesuffix(".weight")).hold(drawn)
            else:
                weight.normal_(std=std)
    return made


def features(vocabulary: int, count: int, seed: int) -> list[Features]:
    """Return random texts, each with one token to predict."""
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(SHORTEST - PROMPT, LONGEST - PROMPT + 1, (count,), generator=draw)
    rows = [torch.randint(5, vocabulary, (int(n),), generator=draw).tolist() for n in lengths]
    made = [TokenRow(ids=ids, decoder=[0, 3], reads=[1]) for ids in rows]
    return [Features(str(i), [row], [5 + i % 2]) for i, row in enumerate(made)]


def members(model: PretrainedBackbone, count: int, batch: int, steps: int) -> list[Member]:
    """Return members, each with its own prompt and examples."""
    task: Any = SimpleNamespace(answer="label", name="made", labels=["a", "b"], max_tokens=None)
    train = TrainConfig(
        max_steps=steps, batch_size=batch, lr=0.3, schedule=Schedule.constant, eval_every=10**9
    )
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        method = PromptTuning(model, task, length=PROMPT)
        method.readout = Words()
        own = features(model.config["vocab_size"], batch * 4, seed)
        made.append(Member(method, own, own[:1], _nothing, "a", train, seed, Clock()))
    return made


def _nothing(_: object) -> dict[str, float]:
    return {"a": 0.0}


def measure(
    model: PretrainedBackbone, count: int, batch: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Train a few steps; return a row of figures."""
    own = members(model, count, batch, WARM + arguments.steps)
    engine = TorchEngine(
        model,
        device=arguments.device,
        precision="bf16" if arguments.device == "cuda" else "fp32",
        token_budget=arguments.token_budget,
        checkpointing=not arguments.keep,
        population=count,
    )
    engine.place([one.method for one in own])
    passes: list[tuple[int, int]] = []
    real: list[int] = []
    run = type(model).forward

    def forward(given):
        if torch.is_grad_enabled():
            passes.append(tuple(given.mask.shape))
            real.append(given.mask.sum())
        return run(model, given)

    model.forward = forward
    if arguments.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    engine.fit(own)
    failed = [one.failed for one in own if one.failed]
    times = own[0].journal.times
    seconds = statistics.median(
        b - a for a, b in zip(times[WARM - 1 :], times[WARM:], strict=False)
    )
    rounds = WARM + arguments.steps
    done = flops(model.config, passes)
    padded = sum(rows * width for rows, width in passes) / rounds
    again = 0 if arguments.keep else done.layers
    rate = 1 / rounds / seconds / arguments.peak
    return {
        "quantization": model.quantization,
        "parameters": model.size(),
        "members": count,
        "batch": batch,
        "failed": failed,
        "seconds_per_step": round(seconds, 4),
        "seconds_per_member_step": round(seconds / count, 4),
        "passes_per_step": round(len(passes) / rounds, 1),
        "real_tokens_per_second": round(float(sum(real)) / rounds / seconds, 1),
        "padded_tokens_per_second": round(padded / seconds, 1),
        "tflops_per_step": round(done.step / rounds / 1e12, 6),
        "tflops_recomputed_per_step": round(again / rounds / 1e12, 6),
        "share_of_peak": round(done.step * rate, 4),
        "share_of_peak_recomputed": round((done.step + again) * rate, 4),
        "peak_memory_gib": round(memory(arguments.device) / 2**30, 3),
    }


def measured(
    config: dict[str, Any], kind: str, arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Return the rows of a format; the last one is an error if not all could be measured."""
    rows: list[dict[str, Any]] = []
    try:
        model = backbone(config, arguments.device, kind)
        for count, batch in product(arguments.members, arguments.batch):
            rows.append(measure(model, count, batch, arguments))
            print(json.dumps(rows[-1]), flush=True)
    except (ImportError, RuntimeError, UserError) as error:  # out of memory is a RuntimeError
        rows.append({"quantization": kind, "error": str(error)})
    return rows


def memory(device: str) -> int:
    """Return peak memory in bytes: the device's since its reset, or this process's so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def peak(device: str) -> float:
    """Return the FLOP/s of a large matrix product, the best of ten trials."""
    size = 8192 if device == "cuda" else 1024
    a, b = (torch.randn(size, size, device=device, dtype=type_on(device)) for _ in range(2))
    best = 0.0
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(5):
            product = a @ b
        float(product[0, 0])  # waits for the device
        best = max(best, 5 * 2 * size**3 / (time.perf_counter() - began))
    return best


def main() -> None:
    """Measure, print and save one table."""
    parser = arguments(__doc__)
    parser.add_argument("--small", action="store_true", help="a miniature, for a CPU")
    parser.add_argument("--members", type=int, nargs="+", default=[1, 5, 20])
    parser.add_argument("--batch", type=int, nargs="+", default=[16])
    parser.add_argument("--quantization", nargs="+", default=["none"])
    parser.add_argument("--steps", type=int, default=0, help="measured rounds; 10, small 2")
    parser.add_argument("--token-budget", type=int, default=16384)
    parser.add_argument("--keep", action="store_true", help="keep activations: no checkpointing")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    given.steps = given.steps or (2 if given.small else 10)
    given.peak = peak(given.device)
    config = compose_run(["backbone=t5_v1_1_xxl"]).config["backbone"]["config"]
    config = {**config, **(SMALL if given.small else {})}
    on = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    found = {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "matrix_peak_tflops": round(given.peak / 1e12, 3),
        "checkpointing": not given.keep,
        "token_budget": given.token_budget,
        "runs": [],
    }
    for kind in given.quantization:
        found["runs"] += measured(config, kind, given)
        gc.collect()  # the model is part of a cycle
        if given.device == "cuda":
            torch.cuda.empty_cache()
    file = given.out / "t5_xxl.json"
    known = {"xxl": "not measured", **kept(file, {})}
    known[f"small on {on}" if given.small else f"xxl on {on}"] = found
    if not given.small:
        known.pop("xxl")
    keep(file, known)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
