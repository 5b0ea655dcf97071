"""What `ptrun plan` prints: jobs and their state, parameters, memory and time, before any run."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ptrun.config.compose import Composed, compose_run
from ptrun.config.overriding import expanded
from ptrun.config.paths import options
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import state_of
from ptrun.method.tokenized import tokenized
from ptrun.planning import table
from ptrun.planning.costs import Costs, alike, planned_on, texts
from ptrun.planning.memory import HardwareLayout, layout_of, visible
from ptrun.runs.examples import divide, split_of
from ptrun.runs.plan import Plan
from ptrun.training.member import Member

# `ptrun plan --probe N`: N real steps of a run on this machine, without files.

_SOME = 64  # examples whose prediction is timed


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


def probe(planned: Plan, layout: HardwareLayout, steps: int) -> tuple[float, float, float]:
    """Return the seconds of a step, of a prediction, and of the run without loading, here.

    The first step does not count. Relations that are learned apart share passes as in the run.

    Raises:
        UserError: the data, the weights or the device are missing.
        RunFailed: a step failed.
    """
    if layout.ranks > 1:
        raise UserError(
            f"--probe {steps} runs in one process, but hardware={layout.option} has "
            f"{layout.ranks} ranks.\nLeave out --probe, or type hardware=cpu or hardware=gpu."
        )
    # 1. Members, each of one part of the data
    engine, train = planned.engine_component.build(planned.backbone), planned.train
    parts = divide(planned.build_method(), split_of(planned)[0])
    methods = [planned.build_method() for _ in parts[: int(getattr(engine, "population", 1))]]
    engine.load(tuned=methods[0].tunes_backbone)
    engine.place(methods)
    few = replace(train, max_steps=steps + 1, eval_every=steps + 1, eval_first=False)
    clock, metric = StepClock(), planned.task.metric
    members = [
        Member(
            method,
            tokenized(method, part.split.train),
            method.encode(part.split.dev[:1]),
            lambda _: {metric: 0.0},
            metric,
            few,
            planned.seed,
            clock if part is parts[0] else StepClock(),
        )
        for method, part in zip(methods, parts, strict=False)
    ]
    first, step = members[0], 0.0
    # 2. The time of a step, and of an answer
    if first.learned:
        engine.fit(members)
        if first.failed:
            raise RunFailed(f"the probe failed: {first.failed}")
        step = median(b - a for a, b in pairwise(clock.steps))
    features = methods[0].encode(parts[0].split.test[:_SOME])
    started = time.monotonic()
    engine.predict(methods[:1], [features])
    answer = (time.monotonic() - started) / len(features)
    # 3. All steps, evaluations on dev, and the evaluation on test
    total = (train.max_steps or train.epochs * first.per_epoch) if first.learned else 0
    evaluations = total // (train.eval_every or first.per_epoch) + 1
    dev, test = (sum(len(getattr(p.split, name)) for p in parts) for name in ("dev", "test"))
    groups = -(-len(parts) // len(members))
    return step, answer, groups * total * step + (dev * evaluations + test) * answer


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


@dataclass(frozen=True)
class PlanOptions:
    """The options of the command.

    Args:
        length: tokens of a text.
        probe: steps to take, to know the time.
        device_gib: memory of a device that is not here.
        tflops: TFLOP/s that a device sustains, to know the time on it.
    """

    length: int | None = None
    probe: int | None = None
    device_gib: float | None = None
    tflops: float | None = None


def overview(overrides: Sequence[str], asked: PlanOptions) -> Group:
    """Return what `ptrun plan` prints.

    Raises:
        UserError: a key or value is wrong. Of several jobs a rejected one is a line instead.
    """
    if asked.probe is None:
        os.environ["HF_HUB_OFFLINE"] = "1"
    jobs = [planned_job(title, typed, asked) for typed, title in expanded(overrides)]
    groups: dict[str, list[PlannedJob]] = {}
    for job in jobs:
        if job.planned:
            groups.setdefault(alike(job.planned), []).append(job)
    if not groups:
        raise UserError(jobs[0].state.removeprefix("refused: "))
    lines: list[RenderableType] = []
    seconds: dict[str, float | None] = {}
    for of_group in groups.values():
        text, took = _group(of_group[0], asked)
        lines += text
        seconds |= {job.title: took for job in of_group}
    # the jobs with their state, and their time if it is known
    timed = any(took is not None for took in seconds.values())
    shown = Table("job", "state", "run", *(["time"] if timed else []))
    for job in jobs:
        row = [job.title or "this run", job.state, job.planned.run_id if job.planned else ""]
        time_ = [table.duration(seconds.get(job.title))] if timed else []
        shown.add_row(*map(escape, row), *time_)
    if asked.probe or asked.tflops:
        unfinished = [job for job in jobs if not job.state.startswith("finished")]
        left = table.duration(sum(seconds.get(job.title) or 0 for job in unfinished))
        lines.insert(0, f"All that is left to do: {left}, one after another.")
    return Group(shown, *lines)


def planned_job(title: str, overrides: tuple[str, ...], asked: PlanOptions) -> PlannedJob:
    """Return a job and its state."""
    run = compose_run(overrides)
    try:
        planned = planned_on(run, layout_of(run, elsewhere=asked.device_gib is not None))
        state = str(state_of(planned.folder))
    except UserError as error:
        return PlannedJob(title, overrides, run, None, f"refused: {error}")
    again = ", to be run again" if run.rerun and state != "new" else ""
    return PlannedJob(title, overrides, run, planned, state + again)


def _layouts(job: PlannedJob, asked: PlanOptions) -> Iterator[HardwareLayout]:
    """Yield the layout of a job's engine, and those of the others with what was typed for it."""
    elsewhere = asked.device_gib is not None
    yield layout_of(job.composed, elsewhere=elsewhere)
    for option in options("hardware"):
        if option != job.composed.names["hardware"]:
            typed = [o for o in job.overrides if not o.startswith("hardware=")]
            yield layout_of(compose_run([*typed, f"hardware={option}"]), elsewhere=elsewhere)


def fitting(overrides: Sequence[str]) -> list[str]:
    """Return changes with which a run that ran out of memory fits this machine, as lines.

    They are computed as `ptrun plan` does; empty if none is known.
    """
    failed = planned_job("", tuple(overrides), PlanOptions())
    layout, *others = _layouts(failed, PlanOptions())
    devices = [device for device in visible(None) if device.kind == layout.device]
    if failed.planned is None or not devices:
        return []
    costs = Costs(failed.planned, texts(failed.planned, None))
    changes = table.advice(costs, layout, others, devices[0])
    return ["By `ptrun plan` it fits with one of:", *(f"  {c}" for c in changes)] if changes else []


def _group(job: PlannedJob, asked: PlanOptions) -> tuple[list[RenderableType], float | None]:
    """Return the lines of jobs that need the same as this one, and the seconds of each."""
    planned = job.planned
    assert planned is not None
    costs = Costs(planned, texts(planned, asked.length))
    layouts, devices = list(_layouts(job, asked)), visible(asked.device_gib)
    costs.memory(layouts[0])  # refused here if it cannot be
    names, steps = job.composed.names, costs.steps()
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        table.counts_table(costs),
        table.memory_table(costs, layouts, devices),
        table.ESTIMATE,
        f"Text: {costs.texts.length} tokens, {costs.texts.origin}; the prompt's own come on top.",
        *table.file_lines(costs),
        *table.fit_lines(costs, layouts, devices),
        "Steps: not known without the data; data_dir=DIR names it, train.max_steps=N sets them."
        if steps is None
        else f"Steps: {steps:,} of {planned.train.batch_size} examples; --probe 20 measures the "
        "time here, --tflops 100 computes it.",
    ]
    if asked.tflops:
        took = costs.seconds(asked.tflops)
        lines.append(f"At {asked.tflops:g} TFLOP/s: {table.duration(took)} a run, loading aside.")
        return lines, took
    if not asked.probe:
        return lines, None
    step, answer, took = probe(planned, layouts[0], asked.probe)
    lines.append(
        f"Probed {asked.probe} steps: {step:.3f} s a step, {answer:.4f} s an answer; "
        f"{table.duration(took)} a run, loading aside."
    )
    return lines, took
