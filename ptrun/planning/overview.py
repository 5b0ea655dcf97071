"""What `ptrun plan` prints: jobs and their state, parameters, memory and time, before any run."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isinf
from statistics import median
from typing import Any, get_args

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded
from ptrun.config.paths import options
from ptrun.config.schema import Quantization
from ptrun.config.writing import value_text
from ptrun.errors import RunFailed, UserError
from ptrun.folder.scan import duration, state_of
from ptrun.method.tokenized import tokenized
from ptrun.planning.costs import Costs, alike, planned_on, texts
from ptrun.planning.memory import (
    GIB,
    Device,
    HardwareLayout,
    devices_here,
    layout_of,
    micro_batches,
)
from ptrun.runs.examples import divide, split_of
from ptrun.runs.manifest import machine
from ptrun.runs.plan import Plan, ordered
from ptrun.training.member import Member

ESTIMATE = (
    "Memory is computed by a formula: 10 measured runs on a CPU and 3 on a GPU were within 13 % of "
    "it, 7 % on average."
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
    lines: list[RenderableType] = []
    seconds: dict[str, float | None] = {}
    for group in groups.values():
        text, took = _group(group[0], asked)
        lines += text
        seconds |= {job.title: took for job in group}
    # the jobs with their state, and their time if it is known
    timed = any(took is not None for took in seconds.values())
    shown = Table("job", "state", "run", *(["time"] if timed else []))
    needs = {other.run_id: other for job in jobs if job.planned for other in ordered(job.planned)}
    for name, other in needs.items():
        shown.add_row("needed by others", str(state_of(other.folder)), escape(name))
    for job in jobs:
        row = [job.title or "this run", job.state, job.planned.run_id if job.planned else ""]
        shown.add_row(*map(escape, row), *([duration(seconds.get(job.title))] if timed else []))
    if asked.probe or asked.tflops:
        unfinished = [job for job in jobs if not job.state.startswith("finished")]
        left = duration(sum(seconds.get(job.title) or 0 for job in unfinished))
        lines.insert(0, f"All that is left to do: {left}, one after another.")
    return Group(shown, *lines)


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


def _layouts(planned: Plan, overrides: Sequence[str], *, elsewhere: bool) -> list[HardwareLayout]:
    """Return the layout of a run's engine, and those of the others with what was typed for it."""
    typed = [override for override in overrides if not override.startswith("hardware=")]
    others = [o for o in options("hardware") if o != planned.names["hardware"]]
    runs = [planned.request, *(compose_run([*typed, f"hardware={option}"]) for option in others)]
    return [layout_of(run, elsewhere=elsewhere) for run in runs]


def _group(job: PlannedJob, asked: PlanOptions) -> tuple[list[RenderableType], float | None]:
    """Return the lines of jobs that need the same as this one, and the seconds of each."""
    planned, devices = job.planned, devices_here(asked.device_gib)
    assert planned is not None
    costs = Costs(planned, texts(planned, asked.length))
    layouts = _layouts(planned, job.overrides, elsewhere=asked.device_gib is not None)
    costs.memory(layouts[0])  # refused here if it cannot be
    names, steps, sizes = planned.names, costs.steps(), costs.sizes
    counts = Table("parameters", *sizes.total, "total", title_justify="left")
    for row, numbers in (("learned", sizes.learned), ("all", sizes.total)):
        of_parts = [numbers[part] for part in sizes.total]
        counts.add_row(row, *(f"{number:,}" for number in (*of_parts, sum(of_parts))))
    files = ", ".join(f"{name} {decimal(size)}" for name, size in sizes.files.items())
    others = (costs.texts.dev or 0) + (costs.texts.test or 0)
    stored = costs.method.readout.stored(costs.texts.train or 0, others, costs.texts.answer)
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        counts,
        _memory_table(costs, layouts, devices),
        ESTIMATE,
        f"Text: {costs.texts.length} tokens, {costs.texts.origin}; the prompt's own come on top.",
        f"Files: {files}",
        *([f"Teacher: at most {decimal(stored)} in outputs/.tokens, for all seeds"] * bool(stored)),
        *_fit_lines(costs, layouts, devices),
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
        step, answer, took, peak = probe(planned, layouts[0], asked.probe)
        lines.append(
            f"Probed {asked.probe} steps: {step:.3f} s a step, {answer:.4f} s an answer; "
            f"{duration(took)} a run, loading aside. Peak memory: {peak / 2**10:.2f} GiB."
        )
    return lines, took


# The memory of each engine, and changes that make a run fit a device, as overrides to type.

_MOST = 4  # pieces of advice
_CHANGED = ("precision", "quantization", "checkpointing", "token_budget")


def needed(costs: Costs, layout: HardwareLayout) -> float:
    """Return the peak bytes on a device; all ranks share a CPU. Infinite if it cannot be."""
    try:
        return costs.memory(layout).peak * (layout.ranks if layout.device == "cpu" else 1)
    except UserError:
        return inf


def _memory_table(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> Table:
    """Return the memory of a rank of each engine, and whether its ranks fit on each device."""
    heads = ("weights", "learned", "activations", "libraries", "peak", "rows x micro-batches")
    table = Table(f"GiB per rank, {costs.texts.length} tokens", *heads)
    for device in devices:
        table.add_column(escape(f"{device.name}, {device.total / GIB:.1f} GiB"))
    for layout in layouts:
        if isinf(need := needed(costs, layout)):
            table.add_row(layout.title, "cannot be divided")
            continue
        memory = costs.memory(layout)
        step = max(memory.activations, memory.writing)
        sizes = (memory.weights, memory.learned, step, memory.libraries, memory.peak)
        batch = micro_batches(layout, costs.planned.train.batch_size, costs.texts.length)
        cells = [*(f"{size / GIB:.2f}" for size in sizes), "{} x {}".format(*batch)]
        fits = (d.verdict(need) if d.kind == layout.device else "" for d in devices)
        table.add_row(layout.title, *cells, *fits)
    return table


def _fit_lines(
    costs: Costs, layouts: Sequence[HardwareLayout], devices: Sequence[Device]
) -> Iterator[str]:
    """Yield what to type on each device on which the first layout does not fit."""
    chosen, *others = layouts
    for device in devices:
        if device.kind != chosen.device or needed(costs, chosen) <= device.most:
            continue
        if changes := advice(costs, chosen, others, device):
            yield f"To make it fit on {escape(device.name)}, type:"
            yield from (f"  {escape(change)}" for change in changes)
        else:
            yield f"No known change makes it fit on {escape(device.name)}."
    if chosen.device not in {device.kind for device in devices}:
        yield "No CUDA device is here. Type --device-gib 80 to plan for one of 80 GiB."


def advice(
    costs: Costs, layout: HardwareLayout, others: Sequence[HardwareLayout], device: Device
) -> list[str]:
    """Return overrides that make a run fit on a device; empty if no known change does.

    Each form of the weights and each other engine has the change that costs the least time.
    """
    low = replace(layout, precision="bf16") if layout.precision == "fp32" else layout
    forms = [low]
    if not costs.sizes.tunes and low.parallel == 1 and low.quantization == "none":
        forms += [replace(low, quantization=kind) for kind in get_args(Quantization)[1:]]
    pairs = [(form, layout) for form in forms] + [(other, other) for other in others]
    lines: list[str] = []
    for form, typed in pairs:
        changes = _smaller(costs, form) if form.device == device.kind else ()
        changed = next((c for c in changes if needed(costs, c) <= device.most), None)
        if changed is not None:
            keys = [key for key in _CHANGED if getattr(changed, key) != getattr(typed, key)]
            words = [f"hardware={form.option}"] * (form.option != layout.option)
            words += [f"hardware.{key}={value_text(key, getattr(changed, key))}" for key in keys]
            each = f" on each of {changed.ranks}" if changed.ranks > 1 else ""
            lines.append(f"{' '.join(words)}  ({needed(costs, changed) / GIB:.1f} GiB{each})")
    learn_less = ["method=prompt_tuning: learn a prompt, not the backbone"] * costs.sizes.tunes
    return lines[:_MOST] or learn_less


def _smaller(costs: Costs, layout: HardwareLayout) -> Iterator[HardwareLayout]:
    """Yield a layout, with smaller micro-batches, and both with recomputed activations."""
    length = costs.texts.length
    rows, _ = micro_batches(layout, costs.planned.train.batch_size, length)
    for recompute in sorted({layout.checkpointing, True}):
        changed = replace(layout, checkpointing=recompute)
        yield changed
        for halvings in range(1, rows.bit_length()):
            yield replace(changed, token_budget=(rows >> halvings) * length)


def fitting(overrides: Sequence[str]) -> list[str]:
    """Return changes with which a run that ran out of memory fits this machine, as lines.

    They are computed as `ptrun plan` does; empty if none is known.
    """
    failed = planned_job("", tuple(overrides), PlanOptions()).planned
    if failed is None:
        return []
    layout, *others = _layouts(failed, overrides, elsewhere=False)
    devices = [device for device in devices_here(None) if device.kind == layout.device]
    costs = Costs(failed, texts(failed, None))
    changes = advice(costs, layout, others, devices[0]) if devices else []
    return ["By `ptrun plan` it fits with one of:", *(f"  {c}" for c in changes)] if changes else []


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
