"""What to type so that a run fits: changes that were computed, not guessed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ptrun.errors import UserError
from ptrun.planning.costs import Costs
from ptrun.planning.devices import GIB, Device
from ptrun.planning.layout import Layout

_MOST = 3  # pieces of advice


def verdict(need: float, device: Device) -> str:
    """Return whether so many bytes fit on a device."""
    most = device.free if device.kind == "cuda" else device.total
    if need <= device.free:
        return f"fits: {need / GIB:.1f} of {device.free / GIB:.1f} GiB free"
    if need <= most:
        return f"fits once other programs leave: {need / GIB:.1f} of {device.total / GIB:.1f} GiB"
    return f"{(need - most) / GIB:.1f} GiB too much: {need / GIB:.1f} of {most / GIB:.1f} GiB"


def fits(need: float, device: Device) -> bool:
    """Return whether so many bytes fit, be it that other programs leave a CPU's memory first."""
    return need <= (device.free if device.kind == "cuda" else device.total)


def ranks_here(layout: Layout, device: Device) -> int:
    """Return how many ranks share a device: on a CPU all, of CUDA devices each has one."""
    return layout.ranks if device.kind == "cpu" else 1


def advice(costs: Costs, layout: Layout, others: Sequence[Layout], device: Device) -> list[str]:
    """Return what to type so that a run fits on a device; empty if nothing that is known helps."""
    found = []
    for typed, changed in _changes(costs, layout, others):
        if changed.device != device.kind:
            continue
        try:
            need = costs.memory(changed).peak * ranks_here(changed, device)
        except UserError:  # it cannot be divided so
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
    """Yield changes and what to type for them, the cheapest in time first."""
    low = layout if layout.precision != "fp32" else replace(layout, precision="bf16")
    bf16 = "hardware.precision=bf16 " if low is not layout else ""
    if bf16:
        yield bf16.strip(), low
    for budget in _budgets(costs, layout):
        yield f"{bf16}hardware.token_budget={budget}", replace(low, token_budget=budget)
    if not layout.checkpointing:
        again = replace(low, checkpointing=True)
        yield f"{bf16}hardware.checkpointing=true", again
        for budget in _budgets(costs, layout):
            typed = f"{bf16}hardware.checkpointing=true hardware.token_budget={budget}"
            yield typed, replace(again, token_budget=budget)
    for other in others:
        yield f"hardware={other.option}", other
        if not other.checkpointing:
            again = replace(other, checkpointing=True)
            yield f"hardware={other.option} hardware.checkpointing=true", again


def _budgets(costs: Costs, layout: Layout) -> Iterator[int]:
    """Yield fewer rows at once, by halves down to one, as the budget that gives them."""
    rows = costs.work(layout).rows
    while rows > 1:
        rows //= 2
        yield rows * costs.length
