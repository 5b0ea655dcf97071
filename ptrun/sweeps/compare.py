"""A comparison: each method gets the same number of trials, dev chooses, and test is scored once.

The trials of a method are a Latin hypercube over its space, `conf/search/METHOD.yaml`: each key is
cut into as many equal parts as there are trials, and each part is tried once. So they depend on
nothing that was measured, and all of them can share passes.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from ptrun.config.compose import compose_run
from ptrun.config.overriding import expanded, read
from ptrun.config.paths import options
from ptrun.config.plain_yaml import load_plain
from ptrun.errors import UserError, unknown
from ptrun.files import below, read_text
from ptrun.folder import result
from ptrun.folder.find import RunFolder
from ptrun.sweeps.job import Job
from ptrun.sweeps.search import TRIALS, chosen, requested, space
from ptrun.sweeps.sweep import do, options_of

GROUP = "search"
"""The folder of `conf/` that has the space of each method."""
_FILE = "comparison.json"
_OURS = ("seed", "trial", "rerun", "keep")


@dataclass
class Contender:
    """A method on a task, with its trials and the runs of its winner.

    Args:
        where: the overrides of its task and backbone, if there are several.
        fixed: the overrides of all its runs, with its name.
        points: the searched keys and values of each trial.
        trials: the jobs of the trials, in the order of `points`.
        seeds: the jobs of the winner.
        winner: the searched values that dev chose; None if no trial has a result.
        dev: the score on dev of the winner's trial.
    """

    method: str
    where: str
    fixed: tuple[str, ...]
    points: Sequence[Mapping[str, Any]]
    trials: list[Job] = field(default_factory=list)
    seeds: list[Job] = field(default_factory=list)
    winner: Mapping[str, Any] | None = None
    dev: float | None = None

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"{self.where} method={self.method}".strip()

    @property
    def chosen(self) -> str:
        """The overrides that dev chose."""
        return " ".join(chosen(self.winner or {}))

    @property
    def failed(self) -> list[str]:
        """Why trials and seeds have no result, a line each."""
        return [job.text or job.stage for job in (*self.trials, *self.seeds) if not _ended(job)]

    @property
    def runs(self) -> list[RunFolder]:
        """The finished runs of the winner, in the order of their seeds."""
        return [run for job in self.seeds if (run := _ended(job))]


def compare(typed: Sequence[str], *, trials: int, seeds: int) -> tuple[Path, list[Contender]]:
    """Do a comparison, or what is left of it; return its folder and its contenders.

    Raises:
        UserError: a method has no space, a key is the comparison's own, or runs are not finished.
    """
    names, common, wheres = _divided(typed)
    base = compose_run(common)
    folder = below(base.outputs, base.name)
    others = [text for text in typed if not text.startswith("method=")]  # may join, on one page
    request = requested("compare", others, base, folder / _FILE)
    every = [
        _contender(name, where, common, trials, base.seed) for where in wheres for name in names
    ]
    for one in every:
        for point in one.points:
            job = [*one.fixed, *chosen(point), "trial={}", f"seed={base.seed}"]
            job.append(f"name={base.name}/{TRIALS}")
            one.trials.append(Job(0, " ".join([one.title, *chosen(point)]), job))
    _do([job for one in every for job in one.trials], common)
    for one in every:
        scores = [_on_dev(job) for job in one.trials]
        if (best := max((s for s in scores if s is not None), default=None)) is not None:
            one.winner, one.dev = one.points[scores.index(best)], best
            for number in range(base.seed + 1, base.seed + 1 + seeds):
                job = [*one.fixed, *chosen(one.winner), f"seed={number}"]
                one.seeds.append(Job(0, f"{one.title} seed={number}", job))
    _do([job for one in every for job in one.seeds], common)
    result.write_json(folder / _FILE, {"request": request})
    return folder, every


def _divided(typed: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the methods, the overrides of all runs, and the values of `task=` or `backbone=`."""
    swept = [o for o in read(typed) if o.is_sweep_override()]
    if wrong := [o for o in swept if o.key_or_group not in ("method", "task", "backbone")]:
        raise UserError(
            f"compare {wrong[0].key_or_group}: type one value. What is searched of a method is in "
            f"conf/{GROUP}/METHOD.yaml; yours is ptrun_conf/{GROUP}/METHOD.yaml."
        )
    keys = [override.partition("=")[0].lstrip("+") for override in typed]
    if wrong_key := next((key for key in keys if key in _OURS), None):
        raise UserError(f"compare {wrong_key}: leave it out; trials=N and seeds=N set the runs.")
    methods = [text for text in typed if text.startswith("method=")]
    if len(methods) != 1:
        raise UserError("compare: type method= once, such as method=prompt_tuning,lora.")
    names = [line[0].partition("=")[2] for line, _ in expanded(methods)]
    common = [text for text in typed if not text.startswith("method=")]
    lines = expanded(common)
    fixed = [text for text in common if all(text in line for line, _ in lines)]
    return names, fixed, [title for _, title in lines]


def _contender(name: str, where: str, common: Sequence[str], trials: int, seed: int) -> Contender:
    """Return a method with the points of its trials; what was typed for all is not searched."""
    files = options(GROUP)
    if name not in files:
        named = unknown(f"compare method={name}", name, files)
        raise UserError(f"{named}\nTo search another method, write ptrun_conf/{GROUP}/{name}.yaml.")
    content = load_plain(read_text(files[name], links=True)) or {}
    typed = {override.partition("=")[0].lstrip("+") for override in common}
    texts = [f"{key}={value}" for key, value in content.items() if key not in typed]
    searched = [o.is_sweep_override() for o in read(texts)]
    ranges = [text for text, is_range in zip(texts, searched, strict=True) if is_range]
    fixed = [text for text, is_range in zip(texts, searched, strict=True) if not is_range]
    points = hypercube(space(ranges).ranges, trials, seed) if ranges else [{}]
    return Contender(name, where, (*common, *fixed, *where.split(), f"method={name}"), points)


def hypercube(
    ranges: Mapping[str, BaseDistribution], trials: int, seed: int
) -> list[dict[str, Any]]:
    """Return the distinct points of a Latin hypercube of so many trials; numbers have 3 digits."""
    columns: list[list[Any]] = []
    for key, range_ in ranges.items():
        places = [(place + 0.5) / trials for place in range(trials)]
        random.Random(f"{seed}:{key}").shuffle(places)
        columns.append([_value(range_, place) for place in places])
    points = [dict(zip(ranges, values, strict=True)) for values in zip(*columns, strict=True)]
    return list({tuple(point.values()): point for point in points}.values())


def _value(range_: Any, place: float) -> Any:
    """Return the value at a place from 0 to 1 of a range."""
    if isinstance(range_, CategoricalDistribution):
        return range_.choices[int(place * len(range_.choices))]
    low, high = range_.low, range_.high
    value = low * (high / low) ** place if range_.log else low + (high - low) * place
    if isinstance(range_, FloatDistribution):
        return float(f"{value:.3g}")
    return low + round((value - low) / range_.step) * range_.step


def _do(jobs: Sequence[Job], common: Sequence[str]) -> None:
    """Do jobs; refuse to go on while one is not finished, and has not failed for good."""
    do(jobs, options_of(common), brief=True)
    left = [job for job in jobs if not (_ended(job) or job.stage in ("failed", "refused"))]
    if left:
        raise UserError(
            f"compare: {len(left)} runs are not finished ({left[0].title}). Type the same command "
            "to go on."
        )


def _ended(job: Job) -> RunFolder | None:
    """Return the run of a finished job."""
    done = result.read(job.folder) if job.stage == "finished" and job.folder else None
    return RunFolder(job.folder, done) if done and job.folder else None


def _on_dev(job: Job) -> float | None:
    run = _ended(job)
    dev = run.result.metrics["dev"] if run else {}
    return dev.get(run.result.metric) if run else None
