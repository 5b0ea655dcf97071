"""What `ptrun plan` prints: jobs and their state, parameters, memory and time, before any run."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.config.compose import Composed
from ptrun.config.explain import composed
from ptrun.config.overriding import expanded
from ptrun.config.paths import options
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import runs
from ptrun.method.base import Method
from ptrun.method.stock_form import afterwards
from ptrun.method.tokenized import tokenized
from ptrun.planning import table
from ptrun.planning.costs import Costs, Texts, costs, method_of, seconds, steps, texts
from ptrun.planning.memory import HardwareLayout, files, layout_of, visible
from ptrun.planning.table import PlannedJob, advice, duration, job, planned_on
from ptrun.runs.parts import Part, divide, shape
from ptrun.runs.plan import Plan, split_of
from ptrun.training.member import Member
from ptrun.types import Example

# `ptrun plan --probe N`: N real steps of a run on this machine, without files.

_SOME = 64  # examples whose prediction is timed


@dataclass(frozen=True)
class Probe:
    """Seconds of a step of all members, of one prediction, and of a run without loading.

    For runs that share passes, the last is a run's share.
    """

    step: float
    answer: float
    run: float


class _Clock:
    """A journal that keeps only the time of each step."""

    def __init__(self) -> None:
        self.steps: list[float] = []

    def log(self, row: Mapping[str, Any]) -> None:
        """Record the time of a step."""
        if row["event"] == "step":
            self.steps.append(time.monotonic())

    def draft(self, tensors: Mapping[str, Any], meta: Mapping[str, Any]) -> Callable[[], object]:
        """Keep nothing."""
        return lambda: None

    def restore(self) -> None:
        """Return nothing."""


def probe(planned: Plan, layout: HardwareLayout, steps: int, runs: int = 1) -> Probe:
    """Return the times here of `runs` such runs that share passes, from some of their steps.

    The first step does not count. A population holds as many runs as fit.

    Raises:
        UserError: the data, the weights or the device are missing.
        RunFailed: a step failed.
    """
    if layout.ranks > 1:
        alone = "gpu" if layout.device == "cuda" else "cpu"
        raise UserError(
            f"--probe {steps} runs in one process, but hardware={layout.option} has "
            f"{layout.ranks} ranks.\nLeave out --probe, or type hardware={alone}."
        )
    planned = replace(planned, engine=planned.engine_component.build(planned.backbone))
    split = split_of(planned)[0]
    parts = divide(planned.build_method(), split)
    together = min(runs, max(1, _population(planned) // len(parts)))
    own = [part for _ in range(together) for part in parts][: _population(planned)]
    methods = [planned.build_method() for _ in own]
    learns = bool(methods[0].learned())
    tuned = methods[0].tunes_backbone
    planned.engine.load(tuned=tuned)
    planned.engine.place(methods)
    members = [
        _member(planned, method, part, steps + 1) for method, part in zip(methods, own, strict=True)
    ]
    seconds = _fit(planned, members) if learns else 0.0
    answer = _answer(planned, methods[0], parts[0].split.test)
    shared = seconds / together
    return Probe(seconds, answer, _whole(planned, parts, members, shared, answer))


def _population(planned: Plan) -> int:
    return int(getattr(planned.engine, "population", 1))


def _member(planned: Plan, method: Method, part: Part, steps: int) -> Member:
    """Return a member that takes `steps` steps and evaluates on one example."""
    train = replace(planned.train, max_steps=steps, eval_every=steps, eval_first=False)
    dev = part.split.dev[:1]
    return Member(
        method,
        tokenized(method, part.split.train),
        method.encode(dev),
        lambda _: {method.task.metric: 0.0},
        method.task.metric,
        train,
        planned.seed,
        _Clock(),
    )


def _fit(planned: Plan, members: Sequence[Member]) -> float:
    planned.engine.fit(members)
    if members[0].failed:
        raise RunFailed(f"the probe failed: {members[0].failed}")
    clock = members[0].journal
    assert isinstance(clock, _Clock)
    pairs = zip(clock.steps, clock.steps[1:], strict=False)
    return median(after - before for before, after in pairs)


def _answer(planned: Plan, method: Method, examples: Sequence[Example]) -> float:
    some = method.encode(examples[:_SOME])
    started = time.monotonic()
    planned.engine.predict([method], [some])
    return (time.monotonic() - started) / len(some)


def _whole(
    planned: Plan, parts: Sequence[Part], members: Sequence[Member], step: float, answer: float
) -> float:
    """Return the seconds of all steps, evaluations on dev, and the evaluation on test."""
    groups = -(-len(parts) // min(len(parts), len(members)))
    train, per_epoch = planned.train, members[0].per_epoch
    total = (train.max_steps or train.epochs * per_epoch) if members[0].learned else 0
    evaluations = total // (train.eval_every or per_epoch) + 1
    dev = sum(len(part.split.dev) for part in parts) * evaluations
    test = sum(len(part.split.test) for part in parts)
    return groups * total * step + (dev + test) * answer


_BESIDE_MEMORY = ("seed", "data_seed", "start")


@dataclass(frozen=True)
class PlanOptions:
    """What was typed as options of the command."""

    length: int | None = None
    """Tokens of a text."""
    probe: int | None = None
    """Steps to take, to know the time."""
    device_gib: float | None = None
    """Memory of a device that is not here."""
    tflops: float | None = None
    """TFLOP/s that a device sustains, to know the time on it."""


def overview(overrides: Sequence[str], asked: PlanOptions) -> Group:
    """Return what `ptrun plan` prints.

    Raises:
        UserError: a key or value is wrong. Of several jobs a rejected one is a line instead.
    """
    if asked.probe is None:
        os.environ["HF_HUB_OFFLINE"] = "1"
    jobs = [_job(own, title, asked) for own, title in expanded(overrides)]
    if all(own.planned is None for own in jobs):
        raise UserError(jobs[0].state.removeprefix("refused: "))
    groups = _alike([own for own in jobs if own.planned])
    parts = [_group(own, asked) for own in groups]
    times = {id(own): found for g, (_, found) in zip(groups, parts, strict=True) for own in g}
    took = [times.get(id(own)) for own in jobs]
    head: list[RenderableType] = [table.jobs_table(jobs, took)]
    left = [s for own, s in zip(jobs, took, strict=True) if s is not None and not own.done]
    if asked.probe or asked.tflops:
        head.append(f"All that is left to do: {table.duration(sum(left))}, one after another.")
    return Group(*head, *(line for lines, _ in parts for line in lines))


def fitting(overrides: Sequence[str]) -> list[str]:
    """Return changes with which a run that ran out of memory fits this machine, as lines.

    They are computed as `ptrun plan` does; empty if none is known.
    """
    own = composed(overrides)
    first = job("", tuple(overrides), own, lambda: own_layout(own, PlanOptions()))
    layout = own_layout(own, PlanOptions())
    here = [device for device in visible(None) if device.kind == layout.device]
    if first.planned is None or not here:
        return []
    needs = costs(first.planned, texts(first.planned, None))
    found = advice(needs, layout, list(_others(first, PlanOptions())), here[0])
    return (
        ["By `ptrun plan` it fits with one of:", *(f"  {line}" for line in found)] if found else []
    )


def _job(overrides: tuple[str, ...], title: str, asked: PlanOptions) -> PlannedJob:
    own = composed(overrides)
    return job(title, overrides, own, lambda: own_layout(own, asked))


def own_layout(own: Composed, asked: PlanOptions) -> HardwareLayout:
    """Return the layout of a run's own engine."""
    elsewhere = asked.device_gib is not None
    return layout_of(own.names["hardware"], own.hardware, own.dtype, elsewhere=elsewhere)


def _others(first: PlannedJob, asked: PlanOptions) -> Iterator[HardwareLayout]:
    """Yield the layouts of the other engines, with what was typed for the chosen one."""
    for option in options("hardware"):
        if option != first.composed.names["hardware"]:
            typed = [o for o in first.overrides if not o.startswith("hardware=")]
            yield own_layout(composed([*typed, f"hardware={option}"]), asked)


def _alike(jobs: Sequence[PlannedJob]) -> list[list[PlannedJob]]:
    """Return jobs in groups that need the same."""
    groups: dict[str, list[PlannedJob]] = {}
    for own in jobs:
        groups.setdefault(_needs(own), []).append(own)
    return list(groups.values())


def _needs(own: PlannedJob) -> str:
    """Return what decides the memory and time of a job."""
    assert own.planned is not None
    kept = {k: v for k, v in own.planned.content.items() if k not in _BESIDE_MEMORY}
    train = {key: kept["train"][key] for key in ("batch_size", "max_steps", "epochs")}
    return repr({**kept, "train": train, "hardware": own.planned.hardware})


def _group(
    alike: Sequence[PlannedJob], asked: PlanOptions
) -> tuple[list[RenderableType], float | None]:
    """Return the lines of jobs that need the same, and the seconds of each, if probed."""
    first = alike[0]
    assert first.planned is not None
    found = texts(first.planned, asked.length)
    own = costs(first.planned, found)
    layouts = [own_layout(first.composed, asked), *_others(first, asked)]
    own.memory(layouts[0])  # refused here if it cannot be
    devices = visible(asked.device_gib)
    names, keeps = first.composed.names, first.planned.keep.has_weights
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        table.counts_table(own),
        table.memory_table(own, layouts),
        f"Text: {found.length} tokens, {found.origin}; the prompt's own come on top.",
        table.file_line(own),
        *table.stored_line(own, found),
        *table.fit_lines(own, layouts, devices),
        *table.population_line(own, layouts[0], devices),
        _steps_line(own, found),
        escape(afterwards(method_of(first.planned), (), keeps_weights=keeps)),
    ]
    if asked.tflops:
        took = seconds(first.planned, found, asked.tflops)
        lines.append(f"At {asked.tflops:g} TFLOP/s: {table.duration(took)} a run, loading aside.")
        return lines, took
    if not asked.probe:
        return lines, None
    probed = probe(first.planned, layouts[0], asked.probe)
    lines.append(
        f"Probed {asked.probe} steps: {probed.step:.3f} s a step, {probed.answer:.4f} s an answer; "
        f"{table.duration(probed.run)} a run, loading aside."
    )
    return lines, probed.run


def _steps_line(own: Costs, found: Texts) -> str:
    count = steps(own.planned, found)
    if count is None:
        return (
            "Steps: not known without the data; data_dir=DIR names it, train.max_steps=N sets them."
        )
    return (
        f"Steps: {count:,} of {own.batch_size} examples; --probe 20 measures the time here, "
        "--tflops 100 computes it."
    )


# `ptrun plan experiment=PAPER/TABLE`: the runs of a table, cell by cell, before any of them.

_GB = 1e9
Overrides = Sequence[str]


@dataclass
class PlannedCell:
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


def table_overview(
    title: str, jobs: Mapping[str, Sequence[Overrides]], asked: PlanOptions
) -> Group:
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
    key: str, own: Sequence[Overrides], states: Mapping[Path, Counter[str]], asked: PlanOptions
) -> PlannedCell:
    try:
        made = composed(own[0])
        cell = PlannedCell(key, len(own), states.get(made.outputs / made.name, Counter()))
        _measure(cell, own, asked)
    except (UserError, RunFailed) as error:
        return PlannedCell(key, len(own), {}, problem=str(error).splitlines()[0])
    return cell


def _measure(cell: PlannedCell, own: Sequence[Overrides], asked: PlanOptions) -> None:
    """Plan the first run of a cell; the others differ in seeds and searched values."""
    made = composed(own[0]).in_sweep()
    layout = own_layout(made, asked)
    planned = planned_on(made, layout)
    most = made.hardware.population if shape(planned) else 1
    cell.groups = -(-cell.left // most)
    found = texts(planned, asked.length)
    counts = costs(planned, found).counts
    kept = planned.keep.has_weights or not counts.tunes
    cell.bytes = cell.count * files(counts)["prompt.safetensors"] * kept
    if asked.tflops:
        took = seconds(planned, found, asked.tflops)
        cell.seconds = None if took is None else took * cell.left
    elif asked.probe and cell.left:
        share = probe(planned, layout, asked.probe, min(most, cell.left))
        cell.seconds = share.run * cell.left


def _table(cells: Sequence[PlannedCell]) -> Table:
    timed = any(cell.seconds is not None for cell in cells)
    columns = ("cell", "runs", "finished", "left", "groups", "GB", *(["time"] if timed else []))
    table = Table(*columns)
    for cell in cells:
        row = [escape(cell.key), str(cell.count), str(cell.states.get("finished", 0))]
        row += [str(cell.left), str(cell.groups or ""), f"{cell.bytes / _GB:.3f}"]
        table.add_row(*row, *([duration(cell.seconds)] if timed else []))
    return table


def _totals(cells: Sequence[PlannedCell], on: str) -> list[RenderableType]:
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
