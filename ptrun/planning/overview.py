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

from ptrun.config.compose import Composed, compose_run
from ptrun.config.overriding import expanded
from ptrun.config.paths import options
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import runs, state_of
from ptrun.method.base import Method
from ptrun.method.tokenized import tokenized
from ptrun.planning import table
from ptrun.planning.costs import alike, costs, planned_on, texts
from ptrun.planning.memory import HardwareLayout, files, layout_of, visible
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


class StepClock:
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
    # as many members as share passes, each of one part of the data
    engine = planned.engine_component.build(planned.backbone)
    planned = replace(planned, engine=engine)
    parts = divide(planned.build_method(), split_of(planned)[0])
    population = int(getattr(engine, "population", 1))
    together = min(runs, max(1, population // len(parts)))
    of_members = (parts * together)[:population]
    methods = [planned.build_method() for _ in of_members]
    engine.load(tuned=methods[0].tunes_backbone)
    engine.place(methods)
    clock = StepClock()
    members = [
        _member(planned, method, part, steps + 1, clock if method is methods[0] else StepClock())
        for method, part in zip(methods, of_members, strict=True)
    ]
    # the time of a step, and of an answer
    step = 0.0
    if methods[0].learned():
        engine.fit(members)
        if members[0].failed:
            raise RunFailed(f"the probe failed: {members[0].failed}")
        step = median(b - a for a, b in zip(clock.steps, clock.steps[1:], strict=False))
    answer = _answer(planned, methods[0], parts[0].split.test)
    # all steps, evaluations on dev, and the evaluation on test
    train, per_epoch = planned.train, members[0].per_epoch
    total = (train.max_steps or train.epochs * per_epoch) if members[0].learned else 0
    groups = -(-len(parts) // min(len(parts), len(members)))
    dev = sum(len(part.split.dev) for part in parts)
    answers = dev * (total // (train.eval_every or per_epoch) + 1)
    answers += sum(len(part.split.test) for part in parts)
    return Probe(step, answer, groups * total * step / together + answers * answer)


def _member(planned: Plan, method: Method, part: Part, steps: int, clock: StepClock) -> Member:
    """Return a member that takes `steps` steps and evaluates on one example."""
    return Member(
        method,
        tokenized(method, part.split.train),
        method.encode(part.split.dev[:1]),
        lambda _: {method.task.metric: 0.0},
        method.task.metric,
        replace(planned.train, max_steps=steps, eval_every=steps, eval_first=False),
        planned.seed,
        clock,
    )


def _answer(planned: Plan, method: Method, examples: Sequence[Example]) -> float:
    features = method.encode(examples[:_SOME])
    started = time.monotonic()
    planned.engine.predict([method], [features])
    return (time.monotonic() - started) / len(features)


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
    jobs = [job(title, typed, asked) for typed, title in expanded(overrides)]
    groups: dict[str, list[PlannedJob]] = {}
    for planned_job in jobs:
        if planned_job.planned:
            groups.setdefault(alike(planned_job.planned), []).append(planned_job)
    if not groups:
        raise UserError(jobs[0].state.removeprefix("refused: "))
    lines: list[RenderableType] = []
    seconds: dict[str, float | None] = {}
    for of_group in groups.values():
        text, took = _group(of_group[0], asked)
        lines += text
        seconds |= {planned_job.title: took for planned_job in of_group}
    head: list[RenderableType] = [_jobs_table(jobs, seconds)]
    if asked.probe or asked.tflops:
        left = sum(
            seconds.get(planned_job.title) or 0 for planned_job in jobs if not planned_job.done
        )
        head.append(f"All that is left to do: {table.duration(left)}, one after another.")
    return Group(*head, *lines)


def job(title: str, overrides: tuple[str, ...], asked: PlanOptions) -> PlannedJob:
    """Return a job and its state."""
    run = compose_run(overrides)
    try:
        planned = planned_on(run, engine_layout(run, asked))
        state = str(state_of(planned.folder))
    except UserError as error:
        return PlannedJob(title, overrides, run, None, f"refused: {error}")
    again = ", to be run again" if run.rerun and state != "new" else ""
    return PlannedJob(title, overrides, run, planned, state + again)


def engine_layout(run: Composed, asked: PlanOptions) -> HardwareLayout:
    """Return the layout of a run's own engine."""
    elsewhere = asked.device_gib is not None
    return layout_of(run.names["hardware"], run.hardware, run.dtype, elsewhere=elsewhere)


def _layouts(job: PlannedJob, asked: PlanOptions) -> Iterator[HardwareLayout]:
    """Yield the layout of a job's engine, and those of the others with what was typed for it."""
    yield engine_layout(job.composed, asked)
    for option in options("hardware"):
        if option != job.composed.names["hardware"]:
            typed = [o for o in job.overrides if not o.startswith("hardware=")]
            yield engine_layout(compose_run([*typed, f"hardware={option}"]), asked)


def _jobs_table(jobs: Sequence[PlannedJob], seconds: Mapping[str, float | None]) -> Table:
    """Return the jobs with their state, and their time if it is known."""
    timed = any(took is not None for took in seconds.values())
    shown = Table("job", "state", "run", *(["time"] if timed else []))
    for planned_job in jobs:
        name = planned_job.planned.run_id if planned_job.planned else ""
        row = [planned_job.title or "this run", planned_job.state, name]
        time_ = [table.duration(seconds.get(planned_job.title))] if timed else []
        shown.add_row(*map(escape, row), *time_)
    return shown


def fitting(overrides: Sequence[str]) -> list[str]:
    """Return changes with which a run that ran out of memory fits this machine, as lines.

    They are computed as `ptrun plan` does; empty if none is known.
    """
    failed = job("", tuple(overrides), PlanOptions())
    layout, *others = _layouts(failed, PlanOptions())
    devices = [device for device in visible(None) if device.kind == layout.device]
    if failed.planned is None or not devices:
        return []
    needs = costs(failed.planned, texts(failed.planned, None))
    changes = table.advice(needs, layout, others, devices[0])
    return ["By `ptrun plan` it fits with one of:", *(f"  {c}" for c in changes)] if changes else []


def _group(job: PlannedJob, asked: PlanOptions) -> tuple[list[RenderableType], float | None]:
    """Return the lines of jobs that need the same as this one, and the seconds of each."""
    planned = job.planned
    assert planned is not None
    needs = costs(planned, texts(planned, asked.length))
    layouts, devices = list(_layouts(job, asked)), visible(asked.device_gib)
    needs.memory(layouts[0])  # refused here if it cannot be
    names, steps = job.composed.names, needs.steps()
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        table.counts_table(needs),
        table.memory_table(needs, layouts, devices),
        table.ESTIMATE,
        f"Text: {needs.texts.length} tokens, {needs.texts.origin}; the prompt's own come on top.",
        *table.file_lines(needs),
        *table.fit_lines(needs, layouts, devices),
        *table.population_line(needs, layouts[0], devices),
        "Steps: not known without the data; data_dir=DIR names it, train.max_steps=N sets them."
        if steps is None
        else f"Steps: {steps:,} of {planned.train.batch_size} examples; --probe 20 measures the "
        "time here, --tflops 100 computes it.",
    ]
    if asked.tflops:
        took = needs.seconds(asked.tflops)
        lines.append(f"At {asked.tflops:g} TFLOP/s: {table.duration(took)} a run, loading aside.")
        return lines, took
    if not asked.probe:
        return lines, None
    times = probe(planned, layouts[0], asked.probe)
    lines.append(
        f"Probed {asked.probe} steps: {times.step:.3f} s a step, {times.answer:.4f} s an answer; "
        f"{table.duration(times.run)} a run, loading aside."
    )
    return lines, times.run


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
    outputs = compose_run(next(iter(jobs.values()))[0]).outputs
    states = _states(outputs)
    cells = [_cell(key, of_cell, states, asked) for key, of_cell in jobs.items()]
    on = f"at {asked.tflops:g} TFLOP/s" if asked.tflops else "on this device"
    return Group(escape(title), _table(cells), *_totals(cells, on))


def _states(outputs: Path) -> dict[Path, Counter[str]]:
    """Return the states of run folders, by the folder above them."""
    states: dict[Path, Counter[str]] = {}
    for run in runs(outputs) if outputs.is_dir() else ():
        states.setdefault(run.folder.parent, Counter())[run.state.kind] += 1
    return states


def _cell(
    key: str, jobs: Sequence[Overrides], states: Mapping[Path, Counter[str]], asked: PlanOptions
) -> PlannedCell:
    try:
        run = compose_run(jobs[0])
        cell = PlannedCell(key, len(jobs), states.get(run.outputs / run.name, Counter()))
        _measure(cell, run.in_sweep(), asked)
    except (UserError, RunFailed) as error:
        return PlannedCell(key, len(jobs), {}, problem=str(error).splitlines()[0])
    return cell


def _measure(cell: PlannedCell, run: Composed, asked: PlanOptions) -> None:
    """Plan the first run of a cell; the others differ in seeds and searched values."""
    layout = engine_layout(run, asked)
    planned = planned_on(run, layout)
    population = run.hardware.population if shape(planned) else 1
    cell.groups = -(-cell.left // population)
    needs = costs(planned, texts(planned, asked.length))
    if planned.keep.has_weights or not needs.counts.tunes:
        cell.bytes = cell.count * files(needs.counts)["prompt.safetensors"]
    if asked.tflops:
        took = needs.seconds(asked.tflops)
        cell.seconds = None if took is None else took * cell.left
    elif asked.probe and cell.left:
        share = probe(planned, layout, asked.probe, min(population, cell.left))
        cell.seconds = share.run * cell.left


def _table(cells: Sequence[PlannedCell]) -> Table:
    timed = any(cell.seconds is not None for cell in cells)
    columns = ("cell", "runs", "finished", "left", "groups", "GB", *(["time"] if timed else []))
    shown = Table(*columns)
    for cell in cells:
        row = [escape(cell.key), str(cell.count), str(cell.states.get("finished", 0))]
        row += [str(cell.left), str(cell.groups or ""), f"{cell.bytes / _GB:.3f}"]
        shown.add_row(*row, *([table.duration(cell.seconds)] if timed else []))
    return shown


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
            f"What is left of {len(timed)} of {len(cells)} cells takes {table.duration(total)} "
            f"{on}, without loading; N devices take an N-th (sweep.devices)."
        )
    lines += [f"{escape(c.key)}: not planned: {escape(c.problem)}" for c in cells if c.problem]
    return lines
