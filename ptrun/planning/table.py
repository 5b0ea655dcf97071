"""The tables and lines of `ptrun plan`."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from rich.markup import escape
from rich.table import Table

from ptrun.backbone.quantization import Quantization
from ptrun.errors import UserError
from ptrun.planning.costs import Costs, method_of
from ptrun.planning.memory import GIB, Device, HardwareLayout, Memory, files, per_member

_PARTS = ("prompt", "head", "backbone")

ESTIMATE = "Estimates: seven measured runs on a CPU were within 21 % of theirs, 10 % on average."
"""From `benchmarks/plan_memory.py`."""


def counts_table(costs: Costs) -> Table:
    """Return the learned and all parameters by part."""
    table = Table("parameters", *_PARTS, "total", title_justify="left")
    learned, total = costs.counts.learned, costs.counts.total
    table.add_row("learned", *(f"{learned[part]:,}" for part in (*_PARTS, "total")))
    table.add_row("all", *(f"{total[part]:,}" for part in _PARTS), f"{sum(total.values()):,}")
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
        row = [*map(_gib, sizes), f"{step.rows} x {step.passes}"]
        for device in devices:
            same = layout.device == device.kind
            row.append(verdict(need.peak * ranks_here(layout, device), device) if same else "")
        table.add_row(layout.title, *row)
    return table


def _memory(costs: Costs, layout: HardwareLayout) -> Memory | None:
    try:
        return costs.memory(layout)
    except UserError:  # this division is impossible
        return None


def population_line(costs: Costs, layout: HardwareLayout, devices: Sequence[Device]) -> list[str]:
    """Return how many members fit with one copy of a frozen backbone."""
    member, need = per_member(costs.counts), _memory(costs, layout)
    if costs.counts.tunes or not member or need is None or layout.zero:
        return []
    return [
        f"{max(0, int((device.free - need.peak) // member + 1)):,} members fit with one backbone "
        f"on {escape(device.name)}, {_size(member)} each. hardware.token_budget limits their "
        "shared activations."
        for device in devices
        if device.kind == layout.device
    ]


def file_lines(costs: Costs) -> list[str]:
    """Return the sizes of a run's files, and of what its read-out computes once and keeps."""
    sizes = (f"{name} {_size(size)}" for name, size in files(costs.counts).items())
    lines = ["Files: " + ", ".join(sizes)]
    train, *rest = [n or 0 for n in (costs.texts.train, costs.texts.dev, costs.texts.test)]
    readout = method_of(costs.planned).readout
    if stored := readout.stored(train, sum(rest), costs.texts.answer):
        lines.append(f"Teacher: at most {_size(stored)} in outputs/.tokens, for all seeds")
    return lines


def duration(seconds: float | None) -> str:
    """Return a time in seconds, minutes or hours."""
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _gib(size: float) -> str:
    return f"{size / GIB:.2f}" if size >= 2**24 else ("0" if not size else "<0.02")


def _size(size: float) -> str:
    for unit, bytes_ in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= bytes_:
            return f"{size / bytes_:.1f} {unit}"
    return f"{size:.0f} bytes"


# Changes that make a run fit a device, as overrides to type.

_MOST = 3  # pieces of advice


def verdict(need: float, device: Device) -> str:
    """Return whether `need` bytes fit on a device, as text."""
    if need <= device.free:
        return "fits"
    if fits(need, device):
        return "fits if other programs end"
    return f"{(need - _most(device)) / GIB:.1f} GiB too much"


def fits(need: float, device: Device) -> bool:
    """Return whether `need` bytes fit; on a CPU, other programs may have to end first."""
    return need <= _most(device)


def _most(device: Device) -> int:
    return device.free if device.kind == "cuda" else device.total


def ranks_here(layout: HardwareLayout, device: Device) -> int:
    """Return how many ranks share a device: all of them on a CPU, one on a CUDA device."""
    return layout.ranks if device.kind == "cpu" else 1


def fit_lines(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> list[str]:
    """Return what to type on each device on which the first layout does not fit."""
    chosen, lines = layouts[0], []
    need = _memory(costs, chosen)
    for device in (device for device in devices if device.kind == chosen.device):
        if need is None or fits(need.peak * ranks_here(chosen, device), device):
            continue
        changes = advice(costs, chosen, layouts[1:], device)
        if changes:
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
        need = memory.peak * ranks_here(changed, device) if memory else 0.0
        if memory is None or not fits(need, device):
            continue
        each = f" on each of {changed.ranks}" if changed.ranks > 1 else ""
        lines.append(f"{' '.join(typed)}  ({need / GIB:.1f} GiB{each})")
        if len(lines) == _MOST:
            break
    if not lines and costs.counts.tunes:
        lines.append("method=prompt_tuning: learn a prompt, not the backbone")
    return lines


Change = tuple[list[str], HardwareLayout]


def _changes(
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout]
) -> Iterator[Change]:
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
    if not costs.counts.tunes and low.model_parallel == 1 and low.quantization == "none":
        for kind in get_args(Quantization)[1:]:
            typed = [*bf16, f"hardware.quantization={kind}"]
            yield from _recomputed(typed, replace(low, quantization=kind))
    for other in others:
        yield from _recomputed([f"hardware={other.option}"], other)


def _recomputed(typed: list[str], layout: HardwareLayout) -> Iterator[Change]:
    """Yield a layout, and again with activations that are recomputed."""
    yield typed, layout
    if not layout.checkpointing:
        yield [*typed, "hardware.checkpointing=true"], replace(layout, checkpointing=True)
