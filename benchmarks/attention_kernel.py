"""Compare the attention kernel with plain attention: time, peak memory and numerics.

    python benchmarks/attention_kernel.py                 on a CUDA device
    python benchmarks/attention_kernel.py --small         numerics alone, in Triton's interpreter

A step is one attention, forward and backward: 16 rows of 256 to 512 tokens, 16 heads of 64, a
prefix of 100, dropout of 0.1, bf16. Rows are padded, or packed as in training. `evaluation` has no
dropout and no gradients. Peak memory counts what a step allocates beside its inputs. An error is
the largest difference from plain attention in fp32, as a share of the largest number, over the
output and all gradients. Prints one line of JSON.
"""

import argparse
import json
import logging
import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

WARM, STEPS = 3, 20
P = 0.1
CASES = ("padded", "packed", "causal", "evaluation")
PATHS = ("plain", "kernel")


@dataclass(frozen=True)
class Size:
    """Rows, heads, tokens of the longest row, length of the prefix, head size and type."""

    rows: int
    heads: int
    tokens: int
    prefix: int
    width: int
    dtype: torch.dtype


FULL = Size(16, 16, 512, 100, 64, torch.bfloat16)
SMALL = Size(2, 2, 20, 5, 12, torch.float32)


class Refused(logging.Handler):
    """Raises what the choice of attention warns of: that it does not use the kernel."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise the message.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(record.getMessage())


def insist() -> None:
    """Fail where attention on a GPU would be plain, because the kernel is missing or wrong."""
    if find_spec("triton") is None:
        sys.exit("triton is not installed")
    logging.getLogger("ptrun.backbone.kernel").addHandler(Refused(logging.WARNING))


class Case:
    """One attention of a case: its vectors, its mask, and how to compute it."""

    def __init__(self, name: str, size: Size, device: str):
        from ptrun.backbone.packing import EVERY, LOOK_BACK, packing_of

        self.name, self.size, self.device = name, size, device
        self.keyed = name != "evaluation"
        ends = torch.linspace(size.tokens // 2, size.tokens, size.rows).long()
        self.mask = (torch.arange(size.tokens) < ends[:, None]).to(device)
        self.packing = None
        if name != "padded":
            causal = name == "causal"
            reach = LOOK_BACK if causal else EVERY
            self.packing = packing_of(self.mask, None, reach, 16)

    def vectors(self, dtype: torch.dtype) -> list[Tensor]:
        """Return the leaves: queries, keys, values, and those of the prefix."""
        size, generator = self.size, torch.Generator().manual_seed(1)
        shape = (size.rows, size.tokens)
        if self.packing:
            shape = (1, len(self.packing.rows))
        text = [(*shape, size.heads, size.width)] * 3
        prefix = [(size.rows, size.prefix, size.heads, size.width)] * 2
        made = [torch.randn(own, generator=generator).to(size.dtype) for own in text + prefix]
        return [own.to(self.device, dtype).transpose(1, 2).requires_grad_(True) for own in made]

    def step(self, vectors: list[Tensor]) -> list[Tensor]:
        """Return the output and, unless this is evaluation, the gradients of the vectors."""
        from ptrun.backbone.attention import attend
        from ptrun.backbone.base import BackboneInput, Prefix
        from ptrun.backbone.injection import Injection, Link

        query, key, value, before, old = vectors
        injection, module = Injection(), nn.Module()
        object.__setattr__(module, "ptrun_link", Link(injection, "text", ("attention", 0)))
        keys = torch.arange(self.size.rows, device=self.device) if self.keyed else None
        given = BackboneInput(self.mask, prefixes=(Prefix(before, old),), keys=keys)
        seen = None if self.packing else self.mask[:, None, None, :]
        with injection.of(given, self.packing), torch.set_grad_enabled(self.keyed):
            out, _ = attend(module, query, key, value, seen, dropout=P if self.keyed else 0.0)
        if not self.keyed:
            return [out]
        return [out, *torch.autograd.grad(out, vectors, torch.ones_like(out))]


def measured(step: Callable[[], Any]) -> dict[str, float]:
    """Return the milliseconds (median) and the peak MiB of a step on the GPU."""
    for _ in range(WARM):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before, times = torch.cuda.memory_allocated(), []
    for _ in range(STEPS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated() - before
    return {"ms": round(statistics.median(times), 3), "peak_mib": round(peak / 2**20, 1)}


def error(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Return the largest difference, as a share of the largest number of a tensor."""
    pairs = [(a.detach().float(), b.detach()) for a, b in zip(found, wanted, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def compared(name: str, size: Size, device: str) -> dict[str, Any]:
    """Return the figures of each path in one case."""
    from ptrun.backbone import launch
    from ptrun.backbone.kernel import TOLERANCE

    case, found = Case(name, size, device), {}
    with launch.use(False):
        exact = case.step(case.vectors(torch.float32))
    for path in PATHS:
        vectors = case.vectors(size.dtype)
        with launch.use(path == "kernel"):
            figures: dict[str, Any] = {"error": error(case.step(vectors), exact)}
            if device == "cuda":
                figures |= measured(lambda given=vectors: case.step(given))
        found[path] = figures
    assert found["kernel"]["error"] <= TOLERANCE[size.dtype], (name, found)
    return found


def report(small: bool = False) -> dict[str, Any]:
    """Return the sizes, the device and the figures of all cases."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = SMALL if small else FULL
    facts = {k: str(v) if isinstance(v, torch.dtype) else v for k, v in vars(size).items()}
    where = torch.cuda.get_device_name() if device == "cuda" else "cpu, Triton's interpreter"
    cases = {name: compared(name, size, device) for name in CASES}
    return {"device": where, "torch": torch.__version__, "size": facts, "cases": cases}


def main() -> None:
    """Print the figures; without a GPU only `--small` runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true", help="a tiny attention, in fp32")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        if not given.small:
            parser.error("torch finds no CUDA device; type --small to check numerics on a CPU.")
        os.environ.setdefault("TRITON_INTERPRET", "1")  # read when Triton is imported
    insist()
    print(json.dumps(report(given.small)))


if __name__ == "__main__":
    main()
