"""The tables and lines of `ptrun plan`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import get_args

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.backbone.quantization import Quantization
from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.folder.scan import state_of
from ptrun.planning.costs import Costs, Texts, method_of
from ptrun.planning.memory import GIB, Device, HardwareLayout, Memory, files, per_member
from ptrun.runs.plan import Plan, plan

# The jobs of a sweep and the state of their run folders.


@dataclass(frozen=True)
class PlannedJob:
    """One run with its title in the sweep and its state.

    `planned` is None if the run is refused; `state` says why.
    """

    title: str
    overrides: tuple[str, ...]
    composed: Composed
    planned: Plan | None
    state: str

    @property
    def done(self) -> bool:
        """Whether the run has finished."""
        return self.state.startswith("finished")


class Elsewhere:
    """A placeholder for an engine that this machine may not have."""

    def __init__(self, layout: HardwareLayout):
        self.precision, self.device = layout.precision, layout.device


def planned_on(own: Composed, layout: HardwareLayout) -> Plan:
    """Return the plan of a run without its engine.

    Raises:
        UserError: as `plan`.
    """
    return plan(own, engine=lambda _backbone: Elsewhere(layout))


def job(
    title: str, overrides: tuple[str, ...], own: Composed, layout: Callable[[], HardwareLayout]
) -> PlannedJob:
    """Return a job and its state."""
    try:
        planned = planned_on(own, layout())
        state = str(state_of(planned.folder))
    except UserError as error:
        return PlannedJob(title, overrides, own, None, f"refused: {error}")
    again = ", to be run again" if own.rerun and state != "new" else ""
    return PlannedJob(title, overrides, own, planned, state + again)


_PARTS = ("prompt", "head", "backbone")
_ROWS = {
    "weights": "weights",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "best": "best checkpoint",
    "activations": "activations or update",
    "spare": "allocator and libraries",
    "peak": "peak",
    "kept": "activations kept",
    "logits": "logits of these",
    "writing": "cache and logits in writing",
}


def jobs_table(jobs: Sequence[PlannedJob], seconds: Sequence[float | None]) -> Table:
    """Return the jobs with their state, and their time if probed."""
    timed = any(own is not None for own in seconds)
    table = Table("job", "state", "run", *(["time"] if timed else []))
    for own, took in zip(jobs, seconds, strict=True):
        name = own.planned.run_id if own.planned else ""
        row = [own.title or "this run", own.state, name]
        table.add_row(*map(escape, row), *([duration(took)] if timed else []))
    return table


def counts_table(costs: Costs) -> Table:
    """Return the learned and all parameters by part."""
    table = Table("parameters", *_PARTS, "total", title_justify="left")
    learned, total = costs.counts.learned, costs.counts.total
    table.add_row("learned", *(f"{learned[part]:,}" for part in (*_PARTS, "total")))
    whole = sum(total.values())
    table.add_row("all", *(f"{total[part]:,}" for part in _PARTS), f"{whole:,}")
    return table


def memory_table(costs: Costs, layouts: Sequence[HardwareLayout]) -> RenderableType:
    """Return the memory of a rank for each engine; the chosen engine comes first."""
    table = Table(f"GiB per rank, {costs.length} tokens per text", *(own.title for own in layouts))
    found = [_memory(costs, own) for own in layouts]
    for key, title in _ROWS.items():
        if key == "writing" and not any(own and own.writing for own in found):
            continue
        cells = (_gib(getattr(own, key)) if own else "-" for own in found)
        table.add_row(title, *cells, end_section=key == "peak")
    works = [costs.work(own) for own in layouts]
    table.add_row("rows x micro-batches", *(f"{own.rows} x {own.passes}" for own in works))
    return Group(table, _other_checkpointing(costs, layouts[0]))


def _other_checkpointing(costs: Costs, chosen: HardwareLayout) -> str:
    other = replace(chosen, checkpointing=not chosen.checkpointing)
    found = _memory(costs, other)
    line = f"With hardware.checkpointing={str(other.checkpointing).lower()}"
    if found is None:
        return f"{line} the backbone cannot be divided"
    sizes = f"{_gib(found.kept)} GiB of activations, peak {_gib(found.peak)} GiB."
    return f"{line} {chosen.option} keeps {sizes}"


def _memory(costs: Costs, layout: HardwareLayout) -> Memory | None:
    try:
        return costs.memory(layout)
    except UserError:
        return None


def fit_lines(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> list[RenderableType]:
    """Return what fits on each device, and what to type if the chosen engine does not fit."""
    lines: list[RenderableType] = []
    for device in devices:
        table = Table(escape(device.name), f"of {device.total / GIB:.1f} GiB")
        suited = [own for own in layouts if own.device == device.kind]
        for own in suited:
            found = _memory(costs, own)
            need = found.peak * ranks_here(own, device) if found else 0.0
            table.add_row(own.title, verdict(need, device) if found else "cannot be divided")
        if suited:
            lines.append(table)
        lines += _advised(costs, layouts, device)
    if layouts[0].device not in {device.kind for device in devices}:
        lines.append("No CUDA device is here. Type --device-gib 80 to plan for one of 80 GiB.")
    return lines


def _advised(
    costs: Costs, layouts: Sequence[HardwareLayout], device: Device
) -> list[RenderableType]:
    chosen = layouts[0]
    found = _memory(costs, chosen) if chosen.device == device.kind else None
    if found is None or fits(found.peak * ranks_here(chosen, device), device):
        return []
    lines = advice(costs, chosen, layouts[1:], device)
    if not lines:
        return [f"No known change makes it fit on {escape(device.name)}."]
    return ["To make it fit, type:", *(f"  {escape(one)}" for one in lines)]


def population_line(
    costs: Costs, layout: HardwareLayout, devices: Sequence[Device]
) -> list[RenderableType]:
    """Return how many members fit with one copy of a frozen backbone."""
    each = per_member(costs.counts)
    found = _memory(costs, layout)
    if costs.counts.tunes or not each or found is None or layout.zero:
        return []
    lines: list[RenderableType] = []
    for device in (own for own in devices if own.kind == layout.device):
        count = max(0, int((device.free - found.peak + each) // each))
        lines.append(
            f"{count:,} members fit with one backbone on {escape(device.name)}, {_size(each)} each."
            " hardware.token_budget limits their shared activations."
        )
    return lines


def file_line(costs: Costs) -> str:
    """Return the sizes of the files of a run."""
    sizes = files(costs.counts).items()
    return "Files: " + ", ".join(f"{name} {_size(size)}" for name, size in sizes)


def stored_line(costs: Costs, found: Texts) -> list[str]:
    """Return the size of what the read-out computes once and keeps, if it keeps something."""
    counts = [n or 0 for n in (found.train, found.dev, found.test)]
    size = method_of(costs.planned).readout.stored(counts[0], sum(counts[1:]), found.answer)
    return [f"Teacher: at most {_size(size)} in outputs/.tokens, for all seeds"] if size else []


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


# Computed changes that make a run fit a device, as overrides to type.

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


def ranks_here(layout: HardwareLayout, device: Device) -> int:
    """Return how many ranks share a device: all of them on a CPU, one on a CUDA device."""
    return layout.ranks if device.kind == "cpu" else 1


def advice(
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout], device: Device
) -> list[str]:
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
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout]
) -> Iterator[tuple[str, HardwareLayout]]:
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


def _quantized(
    costs: Costs, low: HardwareLayout, bf16: str
) -> Iterator[tuple[str, HardwareLayout]]:
    """Yield the formats that hold a frozen backbone in fewer bytes, also with checkpointing."""
    if costs.counts.tunes or low.model_parallel > 1 or low.quantization != "none":
        return
    for kind in get_args(Quantization)[1:]:
        held = replace(low, quantization=kind)
        yield f"{bf16}hardware.quantization={kind}", held
        if not low.checkpointing:
            typed = f"{bf16}hardware.quantization={kind} hardware.checkpointing=true"
            yield typed, replace(held, checkpointing=True)


def _budgets(costs: Costs, layout: HardwareLayout) -> Iterator[int]:
    """Yield token budgets that halve the rows of a micro-batch, down to one row."""
    rows = costs.work(layout).rows
    while rows > 1:
        rows //= 2
        yield rows * costs.length
