"""The tables and lines of `ptrun plan`."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.errors import UserError
from ptrun.planning.advice import advice, fits, ranks_here, verdict
from ptrun.planning.costs import Costs
from ptrun.planning.devices import GIB, Device
from ptrun.planning.jobs import Job
from ptrun.planning.layout import Layout
from ptrun.planning.memory import Memory, files, per_member

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
}


def jobs_table(jobs: Sequence[Job], seconds: Sequence[float | None]) -> Table:
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


def memory_table(costs: Costs, layouts: Sequence[Layout]) -> RenderableType:
    """Return the memory of a rank for each engine; the chosen engine comes first."""
    table = Table(f"GiB per rank, {costs.length} tokens per text", *(own.title for own in layouts))
    found = [_memory(costs, own) for own in layouts]
    for key, title in _ROWS.items():
        cells = (_gib(getattr(own, key)) if own else "-" for own in found)
        table.add_row(title, *cells, end_section=key == "peak")
    works = [costs.work(own) for own in layouts]
    table.add_row("rows x micro-batches", *(f"{own.rows} x {own.passes}" for own in works))
    return Group(table, _other_checkpointing(costs, layouts[0]))


def _other_checkpointing(costs: Costs, chosen: Layout) -> str:
    other = replace(chosen, checkpointing=not chosen.checkpointing)
    found = _memory(costs, other)
    line = f"With hardware.checkpointing={str(other.checkpointing).lower()}"
    if found is None:
        return f"{line} the backbone cannot be divided"
    sizes = f"{_gib(found.kept)} GiB of activations, peak {_gib(found.peak)} GiB."
    return f"{line} {chosen.option} keeps {sizes}"


def _memory(costs: Costs, layout: Layout) -> Memory | None:
    try:
        return costs.memory(layout)
    except UserError:
        return None


def fit_lines(
    costs: Costs, layouts: Sequence[Layout], devices: Sequence[Device]
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


def _advised(costs: Costs, layouts: Sequence[Layout], device: Device) -> list[RenderableType]:
    chosen = layouts[0]
    found = _memory(costs, chosen) if chosen.device == device.kind else None
    if found is None or fits(found.peak * ranks_here(chosen, device), device):
        return []
    lines = advice(costs, chosen, layouts[1:], device)
    if not lines:
        return [f"No known change makes it fit on {escape(device.name)}."]
    return ["To make it fit, type:", *(f"  {escape(one)}" for one in lines)]


def population_line(
    costs: Costs, layout: Layout, devices: Sequence[Device]
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
