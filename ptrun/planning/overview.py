"""What `ptrun plan` prints: jobs and their state, parameters, memory and time, before any run."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape

from ptrun.config.compose import Composed
from ptrun.config.expand import expanded
from ptrun.config.explain import composed
from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.planning import table
from ptrun.planning.advice import advice
from ptrun.planning.arithmetic import seconds
from ptrun.planning.costs import Costs, costs
from ptrun.planning.devices import visible
from ptrun.planning.jobs import Job, job
from ptrun.planning.layout import Layout, layout_of
from ptrun.planning.probe import probe
from ptrun.planning.texts import Texts, steps, texts

_BESIDE_MEMORY = ("seed", "data_seed", "start")


@dataclass(frozen=True)
class Asked:
    """What was typed as options of the command."""

    length: int | None = None
    """Tokens of a text."""
    probe: int | None = None
    """Steps to take, to know the time."""
    device_gib: float | None = None
    """Memory of a device that is not here."""
    tflops: float | None = None
    """TFLOP/s that a device sustains, to know the time on it."""


def overview(overrides: Sequence[str], asked: Asked) -> Group:
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
    first = job("", tuple(overrides), own, lambda: own_layout(own, Asked()))
    layout = own_layout(own, Asked())
    here = [device for device in visible(None) if device.kind == layout.device]
    if first.planned is None or not here:
        return []
    needs = costs(first.planned, texts(first.planned, None).length)
    found = advice(needs, layout, list(_others(first, Asked())), here[0])
    return (
        ["By `ptrun plan` it fits with one of:", *(f"  {line}" for line in found)] if found else []
    )


def _job(overrides: tuple[str, ...], title: str, asked: Asked) -> Job:
    own = composed(overrides)
    return job(title, overrides, own, lambda: own_layout(own, asked))


def own_layout(own: Composed, asked: Asked) -> Layout:
    """Return the layout of a run's own engine."""
    elsewhere = asked.device_gib is not None
    return layout_of(own.names["hardware"], own.hardware, own.dtype, elsewhere=elsewhere)


def _others(first: Job, asked: Asked) -> Iterator[Layout]:
    """Yield the layouts of the other engines, with what was typed for the chosen one."""
    for option in options("hardware"):
        if option != first.composed.names["hardware"]:
            typed = [o for o in first.overrides if not o.startswith("hardware=")]
            yield own_layout(composed([*typed, f"hardware={option}"]), asked)


def _alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return jobs in groups that need the same."""
    groups: dict[str, list[Job]] = {}
    for own in jobs:
        groups.setdefault(_needs(own), []).append(own)
    return list(groups.values())


def _needs(own: Job) -> str:
    """Return what decides the memory and time of a job."""
    assert own.planned is not None
    kept = {k: v for k, v in own.planned.content.items() if k not in _BESIDE_MEMORY}
    train = {key: kept["train"][key] for key in ("batch_size", "max_steps", "epochs")}
    return repr({**kept, "train": train, "hardware": own.planned.hardware})


def _group(alike: Sequence[Job], asked: Asked) -> tuple[list[RenderableType], float | None]:
    """Return the lines of jobs that need the same, and the seconds of each, if probed."""
    first = alike[0]
    assert first.planned is not None
    found = texts(first.planned, asked.length)
    own = costs(first.planned, found.length)
    layouts = [own_layout(first.composed, asked), *_others(first, asked)]
    own.memory(layouts[0])  # refused here if it cannot be
    devices = visible(asked.device_gib)
    names = first.composed.names
    lines: list[RenderableType] = [
        "",
        escape(" · ".join(names[key] for key in ("method", "backbone", "task", "setting"))),
        table.counts_table(own),
        table.memory_table(own, layouts),
        f"Text: {found.length} tokens, {found.origin}; the prompt's own come on top.",
        table.file_line(own),
        *table.fit_lines(own, layouts, devices),
        *table.population_line(own, layouts[0], devices),
        _steps_line(own, found),
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
