"""Computed changes that make a run fit a device, as overrides to type."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

from ptrun.backbone.quantization.formats import Quantization
from ptrun.errors import UserError
from ptrun.planning.costs import Costs
from ptrun.planning.devices import GIB, Device
from ptrun.planning.layout import Layout

_MOST = 3  # pieces of advice


def verdict(need: float, device: Device) -> str:
    """Return whether `need` bytes fit on a device, as text."""
    if need <= device.free:
        return f"fits: needs {need / GIB:.1f} GiB, {device.free / GIB:.1f} GiB are free"
    if fits(need, device):
        return f"fits if other programs end: needs {need / GIB:.1f} of {device.total / GIB:.1f} GiB"
    most = _most(device)
    return f"{(need - most) / GIB:.1f} GiB too much: {need / GIB:.1f} of {most / GIB:.1f} GiB"


def fits(need: float, device: Device) -> bool:
    """Return whether `need` bytes fit; on a CPU, other programs may have to end first."""
    return need <= _most(device)


def _most(device: Device) -> int:
    return device.free if device.kind == "cuda" else device.total


def ranks_here(layout: Layout, device: Device) -> int:
    """Return how many ranks share a device: all of them on a CPU, one on a CUDA device."""
    return layout.ranks if device.kind == "cpu" else 1


def advice(costs: Costs, layout: Layout, others: Sequence[Layout], device: Device) -> list[str]:
    """Return overrides that make a run fit on a device; empty if no known change does."""
    found = []
    for typed, changed in _changes(costs, layout, others):
        if changed.device != device.kind:
            continue
        try:
            need = costs.memory(changed).peak * ranks_here(changed, device)
        except UserError:  # this division is impossible
            continue
        if fits(need, device):
            each = f" on each of {changed.ranks}" if changed.ranks > 1 else ""
            found.append(f"{typed}  ({need / GIB:.1f} GiB{each})")
        if len(found) == _MOST:
            break
    if not found and costs.counts.tunes:
        found.append("method=prompt_tuning: learn a prompt, not the backbone")
    return found


def _changes(
    costs: Costs, layout: Layout, others: Sequence[Layout]
) -> Iterator[tuple[str, Layout]]:
    """Yield overrides and the changed layout, in the order of the time they cost."""
    low = layout if layout.precision != "fp32" else replace(layout, precision="bf16")
    bf16 = "hardware.precision=bf16 " if low is not layout else ""
    own = [(bf16, low)]
    if not layout.checkpointing:
        own.append((f"{bf16}hardware.checkpointing=true ", replace(low, checkpointing=True)))
    for typed, changed in own:
        if changed is not layout:
            yield typed.strip(), changed
        for budget in _budgets(costs, layout):
            yield f"{typed}hardware.token_budget={budget}", replace(changed, token_budget=budget)
    yield from _quantized(costs, low, bf16)
    for other in others:
        yield f"hardware={other.option}", other
        if not other.checkpointing:
            again = replace(other, checkpointing=True)
            yield f"hardware={other.option} hardware.checkpointing=true", again


def _quantized(costs: Costs, low: Layout, bf16: str) -> Iterator[tuple[str, Layout]]:
    """Yield the formats that hold a frozen backbone in fewer bytes, also with checkpointing."""
    if costs.counts.tunes or low.model_parallel > 1 or low.quantization != "none":
        return
    for kind in get_args(Quantization)[1:]:
        held = replace(low, quantization=kind)
        yield f"{bf16}hardware.quantization={kind}", held
        if not low.checkpointing:
            typed = f"{bf16}hardware.quantization={kind} hardware.checkpointing=true"
            yield typed, replace(held, checkpointing=True)


def _budgets(costs: Costs, layout: Layout) -> Iterator[int]:
    """Yield token budgets that halve the rows of a micro-batch, down to one row."""
    rows = costs.work(layout).rows
    while rows > 1:
        rows //= 2
        yield rows * costs.length
