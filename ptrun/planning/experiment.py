"""`ptrun plan experiment=PAPER/TABLE`: the runs of a table, cell by cell, before any of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.config.explain import composed
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import runs
from ptrun.planning.arithmetic import seconds
from ptrun.planning.costs import costs
from ptrun.planning.jobs import planned_on
from ptrun.planning.memory import files
from ptrun.planning.overview import Asked, own_layout
from ptrun.planning.probe import probe
from ptrun.planning.table import duration
from ptrun.planning.texts import texts
from ptrun.runs.shape import shape

_GB = 1e9
Overrides = Sequence[str]


@dataclass
class Cell:
    """The runs of a cell.

    Args:
        key: its name.
        states: how many of its folders are in which state.
        count: its runs.
        groups: how many groups they form; runs of a group share passes.
        bytes: what they keep, beside metrics and predictions.
        seconds: what is left of them takes, if that was asked for and is known.
        problem: why they cannot be planned or probed.
    """

    key: str
    count: int
    states: Mapping[str, int]
    groups: int = 0
    bytes: float = 0.0
    seconds: float | None = None
    problem: str = ""

    @property
    def left(self) -> int:
        """The runs that are not finished."""
        return max(0, self.count - self.states.get("finished", 0))


def table_overview(title: str, jobs: Mapping[str, Sequence[Overrides]], asked: Asked) -> Group:
    """Return what `ptrun plan experiment=...` prints; `jobs` has the runs of each cell."""
    outputs = composed(next(iter(jobs.values()))[0]).outputs
    states = _states(outputs)
    cells = [_cell(key, own, states, asked) for key, own in jobs.items()]
    on = f"at {asked.tflops:g} TFLOP/s" if asked.tflops else "on this device"
    return Group(escape(title), _table(cells), *_totals(cells, on))


def _states(outputs: Path) -> dict[Path, Counter[str]]:
    """Return the states of run folders, by the folder above them."""
    found: dict[Path, Counter[str]] = {}
    for own in runs(outputs) if outputs.is_dir() else ():
        found.setdefault(own.folder.parent, Counter())[own.state.kind] += 1
    return found


def _cell(
    key: str, own: Sequence[Overrides], states: Mapping[Path, Counter[str]], asked: Asked
) -> Cell:
    try:
        made = composed(own[0])
        cell = Cell(key, len(own), states.get(made.outputs / made.name, Counter()))
        _measure(cell, own, asked)
    except (UserError, RunFailed) as error:
        return Cell(key, len(own), {}, problem=str(error).splitlines()[0])
    return cell


def _measure(cell: Cell, own: Sequence[Overrides], asked: Asked) -> None:
    """Plan the first run of a cell; the others differ in seeds and searched values."""
    made = composed(own[0]).in_sweep()
    layout = own_layout(made, asked)
    planned = planned_on(made, layout)
    most = made.hardware.population if shape(planned) else 1
    cell.groups = -(-cell.left // most)
    found = texts(planned, asked.length)
    counts = costs(planned, found.length).counts
    kept = planned.keep.has_weights or not counts.tunes
    cell.bytes = cell.count * files(counts)["prompt.safetensors"] * kept
    if asked.tflops:
        took = seconds(planned, found, asked.tflops)
        cell.seconds = None if took is None else took * cell.left
    elif asked.probe and cell.left:
        share = probe(planned, layout, asked.probe, min(most, cell.left))
        cell.seconds = share.run * cell.left


def _table(cells: Sequence[Cell]) -> Table:
    timed = any(cell.seconds is not None for cell in cells)
    columns = ("cell", "runs", "finished", "left", "groups", "GB", *(["time"] if timed else []))
    table = Table(*columns)
    for cell in cells:
        row = [escape(cell.key), str(cell.count), str(cell.states.get("finished", 0))]
        row += [str(cell.left), str(cell.groups or ""), f"{cell.bytes / _GB:.3f}"]
        table.add_row(*row, *([duration(cell.seconds)] if timed else []))
    return table


def _totals(cells: Sequence[Cell], on: str) -> list[RenderableType]:
    """Return sums, and the cells that cannot be planned."""
    left, groups = sum(cell.left for cell in cells), sum(cell.groups for cell in cells)
    lines: list[RenderableType] = [
        f"{sum(cell.count for cell in cells):,} runs, {left:,} left, in {groups:,} groups; prompts "
        f"and models take {sum(cell.bytes for cell in cells) / _GB:.2f} GB."
    ]
    timed = [cell for cell in cells if cell.seconds is not None]
    if timed:
        total = sum(cell.seconds or 0 for cell in timed)
        lines.append(
            f"What is left of {len(timed)} of {len(cells)} cells takes {duration(total)} {on}, "
            "without loading; N devices take an N-th (sweep.devices)."
        )
    lines += [f"{escape(c.key)}: not planned: {escape(c.problem)}" for c in cells if c.problem]
    return lines
