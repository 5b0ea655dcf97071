"""The tables and lines of `ptrun plan`, and what to type to make a run fit a device."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from ptrun.config.schema import Quantization
from ptrun.errors import UserError
from ptrun.planning.costs import Costs
from ptrun.planning.memory import GIB, Device, HardwareLayout, Memory

_PARTS = ("prompt", "head", "backbone")

ESTIMATE = "Estimates: seven measured runs on a CPU were within 21 % of theirs, 10 % on average."
"""From `benchmarks/plan_memory.py`."""


def counts_table(costs: Costs) -> Table:
    """Return the learned and all parameters by part."""
    table = Table("parameters", *_PARTS, "total", title_justify="left")
    for row, counts in (("learned", costs.sizes.learned), ("all", costs.sizes.total)):
        numbers = [counts[part] for part in _PARTS]
        table.add_row(row, *(f"{number:,}" for number in (*numbers, sum(numbers))))
    return table


def memory_table(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> Table:
    """Return the memory of a rank of each engine, and whether its ranks fit on each device."""
    heads = ("weights", "learned", "activations", "libraries", "peak", "rows x micro-batches")
    table = Table(f"GiB per rank, {costs.texts.length} tokens", *heads)
    for device in devices:
        table.add_column(escape(f"{device.name}, {device.total / GIB:.1f} GiB"))
    for layout in layouts:
        need = _memory(costs, layout)
        if need is None:
            table.add_row(layout.title, "cannot be divided")
            continue
        learned, passing = need.standing - need.weights, max(need.activations, need.writing)
        sizes = (need.weights, learned, passing, need.spare, need.peak)
        step = costs.work(layout)
        row = [*(f"{size / GIB:.2f}" for size in sizes), f"{step.rows} x {step.passes}"]
        for device in devices:
            same = layout.device == device.kind
            row.append(device.verdict(need.peak * layout.sharing) if same else "")
        table.add_row(layout.title, *row)
    return table


def _memory(costs: Costs, layout: HardwareLayout) -> Memory | None:
    try:
        return costs.memory(layout)
    except UserError:  # this division is impossible
        return None


def file_lines(costs: Costs) -> list[str]:
    """Return the sizes of a run's files, and of what its read-out computes once and keeps."""
    sizes = (f"{name} {decimal(size)}" for name, size in costs.sizes.files.items())
    lines, texts = ["Files: " + ", ".join(sizes)], costs.texts
    others = (texts.dev or 0) + (texts.test or 0)
    if stored := costs.method.readout.stored(texts.train or 0, others, texts.answer):
        lines.append(f"Teacher: at most {decimal(stored)} in outputs/.tokens, for all seeds")
    return lines


def duration(seconds: float | None) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Changes that make a run fit a device, as overrides to type.

_MOST = 3  # pieces of advice


def fit_lines(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> list[str]:
    """Return what to type on each device on which the first layout does not fit."""
    chosen, *others = layouts
    need, lines = _memory(costs, chosen), list[str]()
    for device in (device for device in devices if device.kind == chosen.device):
        if need is None or need.peak * chosen.sharing <= device.most:
            continue
        if changes := advice(costs, chosen, others, device):
            lines += [f"To make it fit on {escape(device.name)}, type:"]
            lines += [f"  {escape(change)}" for change in changes]
        else:
            lines.append(f"No known change makes it fit on {escape(device.name)}.")
    if chosen.device not in {device.kind for device in devices}:
        lines.append("No CUDA device is here. Type --device-gib 80 to plan for one of 80 GiB.")
    return lines


def advice(
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout], device: Device
) -> list[str]:
    """Return overrides that make a run fit on a device; empty if no known change does."""
    lines: list[str] = []
    for typed, changed in _changes(costs, layout, others):
        memory = _memory(costs, changed) if changed.device == device.kind else None
        if memory and (need := memory.peak * changed.sharing) <= device.most:
            each = f" on each of {changed.ranks}" if changed.ranks > 1 else ""
            lines.append(f"{' '.join(typed)}  ({need / GIB:.1f} GiB{each})")
        if len(lines) == _MOST:
            break
    learn_less = ["method=prompt_tuning: learn a prompt, not the backbone"] * costs.sizes.tunes
    return lines or learn_less


def _changes(
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout]
) -> Iterator[tuple[list[str], HardwareLayout]]:
    """Yield overrides and the changed layout, in the order of the time they cost."""
    bf16 = ["hardware.precision=bf16"] * (layout.precision == "fp32")
    low = replace(layout, precision="bf16") if bf16 else layout
    for typed, changed in _recomputed(bf16, low):
        yield typed, changed
        rows = costs.work(layout).rows
        while rows > 1:
            rows //= 2
            budget = rows * costs.texts.length
            smaller = replace(changed, token_budget=budget)
            yield [*typed, f"hardware.token_budget={budget}"], smaller
    if not costs.sizes.tunes and low.parallel == 1 and low.quantization == "none":
        for kind in get_args(Quantization)[1:]:
            typed = [*bf16, f"hardware.quantization={kind}"]
            yield from _recomputed(typed, replace(low, quantization=kind))
    for other in others:
        yield from _recomputed([f"hardware={other.option}"], other)


def _recomputed(
    typed: list[str], layout: HardwareLayout
) -> Iterator[tuple[list[str], HardwareLayout]]:
    """Yield a layout, and again with activations that are recomputed."""
    yield typed, layout
    if not layout.checkpointing:
        yield [*typed, "hardware.checkpointing=true"], replace(layout, checkpointing=True)
