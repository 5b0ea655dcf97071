"""Parameter counts and memory of a run on each engine, from its configuration alone."""

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
from ptrun.runs.plan import Plan


@dataclass
class Costs:
    """One run's method on its backbone, both on the meta device.

    Args:
        planned: the run.
        length: tokens of a text.
        counts: its parameters.
        traces: the rows and trace of each traced case, by the case without rows.
    """

    planned: Plan
    length: int
    counts: Parameters
    traces: dict[Case, tuple[int, Trace]] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """Examples in a step."""
        return self.planned.train.batch_size

    def work(self, layout: Layout) -> Work:
        """Return the micro-batches of a rank's step."""
        return work(layout, self.batch_size, self.length)

    def memory(self, layout: Layout) -> Memory:
        """Return the memory of a rank.

        Raises:
            UserError: the heads or the feed-forward width cannot be divided.
        """
        step = self.work(layout)
        return memory(self.counts, self._trace(layout, step.rows), layout, step)

    def _trace(self, layout: Layout, rows: int) -> Trace:
        """Return the trace of `rows` rows; only the first number of rows is traced."""
        low = layout.precision != "fp32"
        autocast = low and self.counts.tunes and not layout.zero
        dtype = torch.bfloat16 if low and not autocast else torch.float32
        narrow = _narrow(self.planned.backbone.config, layout.model_parallel)
        held, on_gpu = layout.quantization, layout.device == "cuda"
        case = Case(0, self.length, dtype, autocast, layout.checkpointing, narrow, held, on_gpu)
        if case not in self.traces:
            backbone, task = self.planned.backbone, self.planned.task
            method = self.planned.method
            self.traces[case] = rows, trace(method, backbone, task, replace(case, rows=rows))
        traced, found = self.traces[case]
        return found.scaled(rows / traced)


def costs(planned: Plan, length: int) -> Costs:
    """Return the costs of a run on texts of `length` tokens."""
    return Costs(planned, length, count(method_of(planned)))


def method_of(planned: Plan) -> Method:
    """Return the method on the meta device, without weights and tokenizer."""
    with torch.device("meta"):
        method: Method = planned.method.build(planned.backbone, planned.task)
    return method


def _narrow(config: Mapping[str, Any], parallel: int) -> int:
    """Return the factor by which a rank's layers are narrower; only T5's layers are divided.

    Raises:
        UserError: `parallel` does not divide their sizes.
    """
    sizes = {key: config[key] for key in ("num_heads", "d_ff") if key in config}
    if len(sizes) < 2:
        return 1
    for key, size in sizes.items():
        if size % parallel:
            raise UserError(
                f"hardware.model_parallel is {parallel}, but the backbone's {key} is {size}. "
                "Use a divisor, such as 1, 2, 4 or 8."
            )
    return parallel
