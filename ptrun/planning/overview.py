"""What `ptrun plan` prints: jobs and their state, parameters, memory and time, before any run."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.markup import escape

from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import duration, state_of
from ptrun.method.tokenized import tokenized
from ptrun.planning.cards import CARDS, Changes, needed, which_gpu
from ptrun.planning.costs import Costs, alike, planned_on, texts
from ptrun.planning.memory import (
    GIB,
    Device,
    HardwareLayout,
    card,
    devices_here,
    layout_of,
    micro_batches,
)
from ptrun.reporting.formats import NONE, Table
from ptrun.runs.examples import divide, split_of
from ptrun.runs.manifest import machine
from ptrun.runs.plan import Plan, ordered
from ptrun.training.member import Member

ESTIMATE = (
    "Memory is computed by a formula: 10 measured runs on a CPU and 3 on a GPU were within 13 % of "
    "it, 7 % on average. A card is counted with 92 % of its GiB: "
    "error correction and the driver take the rest."
)
"""From `benchmarks/results/plan_memory.md`."""

# The jobs of a sweep and the state of their run folders.


@dataclass(frozen=True)
class PlannedJob:
    """One run with its title in the sweep and its state, which says why if there is no plan."""

    title: str
    overrides: tuple[str, ...]
    planned: Plan | None
    state: str


@dataclass(frozen=True)
class PlanOptions:
    """The options of the command; see `ptrun plan --help`."""

    length: int | None = None
    probe: int | None = None
    device_gib: float | None = None
    tflops: float | None = None


def overview(overrides: Sequence[str], asked: PlanOptions) -> Group:
    """Return what `ptrun plan` prints; of several jobs a rejected one is a line."""
    if asked.probe is None:
        os.environ["HF_HUB_OFFLINE"] = "1"
    jobs = [planned_job(title, typed, asked) for typed, title in expanded(overrides)]
    groups: dict[str, list[PlannedJob]] = {}
    for job in jobs:
        if job.planned:
            groups.setdefault(alike(job.planned), []).append(job)
    if not groups:
        raise UserError(jobs[0].state.removeprefix("refused: "))
    answers, lines = list[str](), list[RenderableType]()
    seconds: dict[str, float | None] = {}
    for group in groups.values():
        answer, text, took = _group(group[0], asked)
        title = f"{text[1]}: " if len(groups) > 1 else ""
        answers += [escape(title + answer)] if answer else []
        lines += text
        seconds |= {job.title: took for job in group}
    # the jobs with their state, and their time if it is asked for
    timed, shown = asked.probe or asked.tflops, []
    needs = {other.run_id: other for job in jobs if job.planned for other in ordered(job.planned)}
    for name, other in needs.items():
        row = {"job": "needed by others", "state": str(state_of(other.folder)), "run": name}
        shown.append(row | ({"time": NONE} if timed else {}))
    for job in jobs:
        name = job.planned.run_id if job.planned else ""
        row = {"job": job.title or "this run", "state": job.state, "run": name}
        shown.append(row | ({"time": duration(seconds.get(job.title))} if timed else {}))
    if timed:
        unfinished = [job for job in jobs if not job.state.startswith("finished")]
        left = duration(sum(seconds.get(job.title) or 0 for job in unfinished))
        lines.insert(0, f"All that is left to do: {left}, one after another.")
    return Group(*answers, Table(shown, ["job", "state", "run"], ["job"]), *lines)


def planned_job(title: str, overrides: tuple[str, ...], asked: PlanOptions) -> PlannedJob:
    """Return a job and its state."""
    run = compose_run(overrides)
    try:
        planned = planned_on(run, layout_of(run, elsewhere=asked.device_gib is not None))
        state = str(state_of(planned.folder))
    except UserError as error:
        return PlannedJob(title, overrides, None, f"refused: {error}")
    again = ", to be run again" if run.rerun and state != "new" else ""
    return PlannedJob(title, overrides, planned, state + again)


def _group(job: PlannedJob, asked: PlanOptions) -> tuple[str, list[RenderableType], float | None]:
    """Return which GPU jobs like this one need, all lines of them, and the seconds of each."""
    planned, devices = job.planned, devices_here(asked.device_gib)
    assert planned is not None
    costs = Costs(planned, texts(planned, asked.length))
    layout = layout_of(planned.request, elsewhere=asked.device_gib is not None)
    costs.memory(layout)  # refused here if it cannot be
    cpu = list[str]()
    if layout.device == "cpu" and needed(costs, layout) > devices[0].most:
        changes = Changes(costs, job.overrides, elsewhere=False)
        cpu = _to_fit("To make it fit on this CPU, type:", changes, devices[0])
    gpus = [device for device in devices if device.kind == "cuda"]
    here, named = (gpus[-1:], []) if asked.device_gib else (gpus[:1], [*map(card, CARDS)])
    which, layouts = "", dict[str, HardwareLayout]()
    with suppress(UserError):  # an engine of the user's own may have keys that hardware=gpu lacks
        which, layouts = which_gpu(Changes(costs, job.overrides, elsewhere=True), here, named)
    layouts = {layout.title: layout, **layouts}
    names, steps, sizes = planned.names, costs.steps(), costs.sizes
    counts = []
    for kind, numbers in (("learned", sizes.learned), ("all", sizes.total)):
        parts = {part: numbers[part] for part in sizes.total}
        parts["total"] = sum(parts.values())
        counts.append({"parameters": kind, **{name: f"{n:,}" for name, n in parts.items()}})
    files = ", ".join(f"{name} {decimal(size)}" for name, size in sizes.files.items())
    others = (costs.texts.dev or 0) + (costs.texts.test or 0)
    stored = costs.method.readout.stored(costs.texts.train or 0, others, costs.texts.answer)
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        Table(counts, ["parameters"]),
        _memory_table(costs, layouts, devices[0]),
        ESTIMATE,
        f"Text: {costs.texts.length} tokens, {costs.texts.origin}; the prompt's own come on top.",
        f"Files: {files}",
        *([f"Teacher: at most {decimal(stored)} in outputs/.tokens, for all seeds"] * bool(stored)),
        *map(escape, cpu),
        "Steps: not known without the data; data_dir=DIR names it, train.max_steps=N sets them."
        if steps is None
        else f"Steps: {steps:,} of {planned.train.batch_size} examples; --probe 20 measures the "
        "time here, --tflops 100 computes it.",
    ]
    took = None
    if asked.tflops:
        took = costs.seconds(asked.tflops)
        lines.append(f"At {asked.tflops:g} TFLOP/s: {duration(took)} a run, loading aside.")
    elif asked.probe:
        step, answer, took, peak = probe(planned, layout, asked.probe)
        lines.append(
            f"Probed {asked.probe} steps: {step:.3f} s a step, {answer:.4f} s an answer; "
            f"{duration(took)} a run, loading aside. Peak memory: {peak / 2**10:.2f} GiB."
        )
    return which, lines, took


# The memory of a run as it is typed, and with each change that was named.


def _memory_table(costs: Costs, layouts: Mapping[str, HardwareLayout], cpu: Device) -> Table:
    """Return the memory of a rank of each layout by its title, and where it fits."""
    rows = []
    for title, layout in layouts.items():
        need, memory = needed(costs, layout), costs.memory(layout)
        step = max(memory.activations, memory.writing)
        sizes = {"weights": memory.weights, "learned": memory.learned, "activations": step}
        sizes |= {"libraries": memory.libraries, "peak": memory.peak}
        batch = micro_batches(layout, costs.planned.train.batch_size, costs.texts.length)
        row = {f"GiB, {costs.texts.length} tokens": title}
        row |= {name: f"{size / GIB:.2f}" for name, size in sizes.items()}
        row["rows x micro-batches"] = "{} x {}".format(*batch)
        least = (f"{size} GiB" for size in CARDS if need <= card(size).most)
        row["fits"] = next(least, "none") if layout.device == "cuda" else cpu.verdict(need)
        rows.append(row)
    return Table(rows, [*rows[0]][:1])


def fitting(overrides: Sequence[str]) -> list[str]:
    """Return changes with which a run that ran out of memory fits this machine, as lines.

    They are computed as `ptrun plan` does; empty if none is known.
    """
    failed = planned_job("", tuple(overrides), PlanOptions()).planned
    if failed is None:
        return []
    changes = Changes(Costs(failed, texts(failed, None)), overrides, elsewhere=False)
    devices = [device for device in devices_here(None) if device.kind == changes.layout.device]
    return _to_fit("By `ptrun plan` it fits with one of:", changes, devices[0]) if devices else []


def _to_fit(title: str, changes: Changes, device: Device) -> list[str]:
    """Return what to type so that a run fits on a device, a line each."""
    ways = [change for form in changes.forms(device.most) for change in form if change.typed]
    lines = [f"  {change.typed}  ({change.peak / GIB:.1f} GiB)" for change in ways]
    return [title, *lines] if lines else []


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


def probe(planned: Plan, layout: HardwareLayout, steps: int) -> tuple[float, float, float, float]:
    """Return the seconds of a step, of a prediction and of the run, and the peak memory in MiB.

    Loading is left out, and the first step does not count. Relations that are learned apart share
    passes as in the run.
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
    metric, clocks = planned.task.metric, [StepClock() for _ in methods]
    members = [
        Member(
            method,
            tokenized(method, part.split.train),
            method.encode(part.split.dev[:1]),
            lambda _: {metric: 0.0},
            *(metric, few, planned.seed, clock),
        )
        for method, part, clock in zip(methods, parts, clocks, strict=False)
    ]
    member, step = members[0], 0.0
    # 2. The time of a step, and of an answer
    if member.learned:
        engine.fit(members)
        if member.failed:
            raise RunFailed(f"the probe failed: {member.failed}")
        step = median(b - a for a, b in pairwise(clocks[0].steps))
    features = methods[0].encode(parts[0].split.test[:_SOME])
    started = time.monotonic()
    engine.predict(methods[:1], [features])
    answer = (time.monotonic() - started) / len(features)
    # 3. All steps, evaluations on dev, and the evaluation on test
    total = (train.max_steps or train.epochs * member.per_epoch) if member.learned else 0
    evaluations = total // (train.eval_every or member.per_epoch) + 1
    dev, test = (sum(len(getattr(p.split, name)) for p in parts) for name in ("dev", "test"))
    seconds = -(-len(parts) // len(members)) * total * step + (dev * evaluations + test) * answer
    return step, answer, seconds, machine(engine.device)["peak_memory_mib"]
