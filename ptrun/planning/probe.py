"""`ptrun plan --probe N`: N real steps of a run on this machine, without files."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ptrun.errors import RunFailed, UserError
from ptrun.files import below
from ptrun.method.base import Method
from ptrun.planning.layout import Layout
from ptrun.readout.base import Features
from ptrun.runs.parts import Part, divide
from ptrun.runs.plan import Plan, split_of
from ptrun.runs.token_cache import TOKENS, encoded
from ptrun.stored import Stored
from ptrun.training.member import Member
from ptrun.types import Example

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


def probe(planned: Plan, layout: Layout, steps: int, runs: int = 1) -> Probe:
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
    gc.enable()  # the command disables it; training needs it
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
        _features(planned, method, part.split.train),
        method.encode(dev),
        lambda _: {method.task.metric: 0.0},
        method.task.metric,
        train,
        planned.seed,
        _Clock(),
    )


def _features(planned: Plan, method: Method, examples: Sequence[Example]) -> Sequence[Features]:
    """Return encoded examples; only those made from a corpus, which may be many, are stored."""
    if isinstance(examples, Stored):
        return encoded(method, examples, below(planned.outputs, TOKENS))
    return method.encode(examples)


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
