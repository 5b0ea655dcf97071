"""The checks of `model_types.py`: rows of its table, and the time of reading by probe."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from running import HERE
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(HERE.parent))

from ptrun.backbone import proof
from ptrun.backbone.base import Positions
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.probe import probed
from ptrun.errors import UserError
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.backbone import types
from tests.exporting.runs import compared, moved
from tests.small_runs import conll03

METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "prompt": (PromptTuning, {"length": 3}),
    "prefix": (PTuningV2, {"length": 3}),
    "LoRA": (LoRA, {"rank": 2, "alpha": 4}),
}
EQUAL = 1e-4
STEPS = 6
SIZES = {
    "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2000,
}  # fmt: skip


def read(folder: Path, kind: str) -> PretrainedBackbone:
    """Return a backbone that is not loaded."""
    return PretrainedBackbone(name=kind, path=str(folder), dtype="fp32")


def said(try_it: Callable[[], str]) -> str:
    """Return an outcome, or why it is refused."""
    try:
        return try_it()
    except UserError as error:
        return "refused: " + " ".join(str(error).split("\n")[0].split())


def packed(backbone: PretrainedBackbone) -> str:
    """Return how far packed rows are from padded ones, as a share of the largest number."""
    own = backbone.architecture
    if own.packed is None:
        return "padded rows only"
    given = proof._rows(backbone, (7, 4, 5))
    given = replace(given, hidden_at=Positions(*given.mask.nonzero(as_tuple=True)))
    one = backbone.forward(given).hidden
    backbone.architecture = replace(own, packed=None)
    other = backbone.forward(given).hidden
    backbone.architecture = own
    assert one is not None and other is not None
    return f"{float((one - other).abs().max() / other.abs().max()):.0e}"


def quantized(folder: Path, kind: str) -> str:
    """Return what int8 changes in the last states, as a share."""
    backbone, plain = read(folder, kind), read(folder, kind)
    backbone.quantize("int8")
    states = []
    for own in (backbone, plain):
        own.read_weights()
        given = proof._rows(own, (7, 4))
        at = Positions(*given.mask.nonzero(as_tuple=True))
        states.append(own.forward(replace(given, hidden_at=at, decoder=None)).hidden)
    return f"{float((states[0] - states[1]).norm() / states[1].norm()):.0%}"


def exported(folder: Path, kind: str, name: str, data: Path, place: Path) -> str:
    """Return the difference of logits in stock PEFT."""
    made, options = METHODS[name]
    backbone = read(folder, kind)
    backbone.load()
    task = conll03(data)
    method = moved(lambda *given: made(*given, **options), backbone, task)
    found = compared(method, place, task.load("train"))[1].difference
    return f"{found:.0e}" if found <= EQUAL else f"differs by {found:.0e}"


def row(kind: str, data: Path, place: Path) -> list[str]:
    """Return the cells of a model type."""
    folder = types.make(kind, place / "model")
    backbone = read(folder, kind)
    backbone.load()
    checks = [f"{own.far:.0e}" if own.passed else "FAILS" for own in proof.prove(backbone)]
    last = [said(lambda n=n: exported(folder, kind, n, data, place / n)) for n in METHODS]  # type: ignore[misc]
    return [
        kind, *checks, packed(backbone), said(lambda: quantized(folder, kind)), *last
    ]  # fmt: skip


def llama(pairs: int) -> str:
    """Return how a Llama that is read by probe compares with the named family."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        config = transformers.LlamaConfig(**SIZES)
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(folder)

        own = {"families": {"llama": probed(config.to_dict())}}
        kinds = PretrainedBackbone, type("Traced", (PretrainedBackbone,), own)
        steps = [_step(kind(name="llama", path=folder)) for kind in kinds]
        ops = [_operations(step) for step in steps]
        ratios = [_seconds(steps[1]) / _seconds(steps[0]) for _ in range(pairs)]
    different = {name: (ops[0][name], ops[1][name]) for name in ops[0] | ops[1]
                 if ops[0][name] != ops[1][name]}  # fmt: skip
    return (
        f"A Llama of {SIZES['num_hidden_layers']} layers, prefixes of 20, 8 rows of 64 tokens, "
        f"one step forward and back: {sum(ops[0].values())} operations named, "
        f"{sum(ops[1].values())} by probe{f', different: {different}' if different else ', equal'}."
        f" Time by probe / named: {median(ratios):.3f} (median of {pairs} pairs, "
        f"{min(ratios):.2f} to {max(ratios):.2f})."
    )


def _step(backbone: PretrainedBackbone) -> Callable[[], None]:
    """Return one step over prefixes of a loaded backbone."""
    backbone.load()
    shape = backbone.shape
    given = proof._rows(backbone, (64,) * 8)
    form = (8, shape.heads, 20, shape.head_size)
    leaf = torch.randn(shape.layers, 2, *form, generator=torch.Generator().manual_seed(0))
    leaf.requires_grad_()
    rows = torch.arange(8)
    last = Positions(rows, torch.full((8,), 63))

    def step() -> None:
        leaf.grad = None
        pairs = tuple(proof.Prefix(*own) for own in leaf)
        found = backbone.forward(replace(given, prefixes=pairs, logits_at=last)).logits
        assert found is not None
        found.square().mean().backward()

    step()
    return step


def _operations(step: Callable[[], None]) -> Counter[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
    return Counter({own.key: own.count for own in seen.key_averages()})


def _seconds(step: Callable[[], None]) -> float:
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    return time.perf_counter() - begun
