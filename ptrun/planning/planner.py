"""`python -m ptrun.planning.planner`: plans runs for jobs on other machines, one request a line.

It answers the scheduler as `ptrun.runs.worker` does, without devices and weights, and adds what a
run needs: memory, processes and time.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.hardware import processes
from ptrun.planning.costs import alike, costs, planned_on, texts
from ptrun.planning.memory import HardwareLayout, layout_of, per_member
from ptrun.runs.parts import shape
from ptrun.runs.plan import Plan, unkept

_GIB = 2**30
_LIBRARIES = 3.0  # GiB of main memory that a process takes beside its tensors: an allowance


@dataclass(frozen=True)
class Needs:
    """What the job of a run needs.

    Args:
        device: `cpu` or `cuda`.
        ranks: processes of a run.
        gib: GiB of main memory of a process.
        each: GiB that one more run of its group adds.
        seconds: time of a run at the cluster's TFLOP/s; None if that is not known.
    """

    device: str
    ranks: int
    gib: float
    each: float
    seconds: float | None


class Planner:
    """Plans runs; those that differ in seeds and rates alone are measured once."""

    def __init__(self) -> None:
        self.known: dict[str, Needs] = {}

    def facts(self, index: int, composed: Composed) -> dict[str, Any]:
        """Return what the scheduler and a job need to know about a run, or why it is refused."""
        try:
            return {"index": index, "refused": None, **self._facts(composed)}
        except UserError as error:
            return {"index": index, "refused": str(error), "folder": "", "shape": None, "most": 1}

    def _facts(self, composed: Composed) -> dict[str, Any]:
        hardware = composed.hardware
        if hardware.divides and not hardware.ranks and hardware.model_parallel == 1:
            raise UserError("sweep.on=slurm: type hardware.ranks=N, the processes of a run.")
        layout = layout_of(composed.names["hardware"], hardware, composed.dtype, elsewhere=True)
        planned = planned_on(composed, layout)
        needs = self.known.get(key := alike(planned))
        if needs is None:
            needs = self.known[key] = _needs(planned, layout, composed.cluster.tflops)
        shared = shape(planned)
        return {
            "folder": str(planned.folder),
            "shape": shared,
            "most": hardware.population if shared else 1,
            "unkept": unkept(planned),
            "needs": asdict(needs),
        }


def _needs(planned: Plan, layout: HardwareLayout, tflops: float | None) -> Needs:
    run = costs(planned, texts(planned, None))
    peak, weights = run.memory(layout).peak, run.counts.held * layout.width
    on_device = layout.device == "cuda"
    return Needs(
        device=layout.device,
        ranks=layout.ranks,
        gib=_LIBRARIES + (weights if on_device else peak) / _GIB,
        each=0.0 if on_device else per_member(run.counts) / _GIB,
        seconds=run.seconds(tflops) if tflops else None,
    )


def _answer(planner: Planner, configurations: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        planner.facts(int(index), processes.read_text(text))
        for index, text in configurations.items()
    ]


def main() -> None:
    """Answer requests until standard input ends."""
    processes.exit_with_parent(os.environ)
    os.environ["HF_HUB_OFFLINE"] = "1"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    planner = Planner()
    for line in sys.stdin:
        print(json.dumps(_answer(planner, json.loads(line)["plan"])), file=answers, flush=True)


if __name__ == "__main__":
    main()
