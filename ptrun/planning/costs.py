"""What a run costs on each engine: counts and memory, from its configuration alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.planning.layout import Layout
from ptrun.planning.memory import Memory, Work, memory, work
from ptrun.planning.parameters import Parameters, count
from ptrun.planning.trace import Case, Trace, trace
from ptrun.run.plan import Plan


@dataclass
class Costs:
    """One run's method on its backbone, both on the meta device.

    Args:
        planned: the run.
        length: tokens of a text.
        counts: its parameters.
        traces: what was followed so far, by all but rows.
    """

    planned: Plan
    length: int
    counts: Parameters
    traces: dict[Case, tuple[int, Trace]] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """Examples of a step."""
        return self.planned.train.batch_size

    def work(self, layout: Layout) -> Work:
        """Return how a rank cuts a step up."""
        return work(layout, self.batch_size, self.length)

    def memory(self, layout: Layout) -> Memory:
        """Return what a rank needs.

        Raises:
            UserError: the heads or the feed-forward cannot be divided so.
        """
        own = self.work(layout)
        return memory(self.counts, self._trace(layout, own.rows), layout, own)

    def _trace(self, layout: Layout, rows: int) -> Trace:
        """Return what so many rows keep; only the first count of rows is followed."""
        low = layout.precision != "fp32"
        autocast = low and self.counts.tunes and not layout.zero
        dtype = torch.bfloat16 if low and not autocast else torch.float32
        narrow = _narrow(self.planned.backbone.config, layout.model_parallel)
        case = Case(0, self.length, dtype, autocast, layout.checkpointing, narrow)
        if case not in self.traces:
            own = replace(case, rows=rows)
            backbone, task = self.planned.backbone, self.planned.task
            self.traces[case] = rows, trace(self.planned.method, backbone, task, own)
        followed, found = self.traces[case]
        return found.scaled(rows / followed)


def costs(planned: Plan, length: int) -> Costs:
    """Return the costs of a run on texts of so many tokens."""
    return Costs(planned, length, count(method_of(planned)))


def method_of(planned: Plan) -> Method:
    """Return the method on the meta device; needs no weights and no tokenizer."""
    with torch.device("meta"):
        method: Method = planned.method.build(planned.backbone, planned.task)
    return method


def _narrow(config: Mapping[str, Any], parallel: int) -> int:
    """Return by how much a rank's layers are narrower; others than T5 are counted whole.

    Raises:
        UserError: they cannot be divided so.
    """
    sizes = {key: config[key] for key in ("num_heads", "d_ff") if key in config}
    if len(sizes) < 2:
        return 1
    for key, size in sizes.items():
        if size % parallel:
            raise UserError(
                f"hardware.model_parallel is {parallel}, which does not divide the backbone's "
                f"{key}, {size}; use 1, 2, 4 or 8."
            )
    return parallel
