"""`python -m ptrun.planning.planner`: plans runs for jobs on other machines, one request a line.

It answers the scheduler as `ptrun.runs.worker` does, without devices and weights, and adds what a
run needs: memory, processes and time.
"""

import json
import os
import sys
from typing import Any

from ptrun.config.compose import Composed
from ptrun.errors import UserError
from ptrun.hardware import processes
from ptrun.planning.costs import Costs, alike, planned_on, texts
from ptrun.planning.memory import GIB, layout_of
from ptrun.runs.plan import shape, unkept

_LIBRARIES = 3.0  # GiB of main memory that a process takes beside its tensors: an allowance


def facts(composed: Composed, needs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what the scheduler and a job need to know about a run.

    `needs` is the device of a run, its processes (`ranks`), the GiB of main memory of one (`gib`),
    those that one more run of its group adds (`each`), and its `seconds`. The argument has those of
    other runs: runs that differ in seeds and rates alone are counted once.
    """
    hardware, tflops = composed.hardware, composed.cluster.tflops
    if hardware.divides and not hardware.ranks and hardware.model_parallel == 1:
        raise UserError("sweep.on=slurm: type hardware.ranks=N, the processes of a run.")
    layout = layout_of(composed, elsewhere=True)
    planned = planned_on(composed, layout)
    if (key := alike(planned)) not in needs:
        costs, on_gpu = Costs(planned, texts(planned, None)), layout.device == "cuda"
        peak = costs.memory(layout).peak  # refused here if it cannot be divided
        held = costs.sizes.held * layout.width if on_gpu else peak
        needs[key] = {
            "device": layout.device,
            "ranks": layout.ranks,
            "gib": _LIBRARIES + held / GIB,
            "each": 0.0 if on_gpu else costs.sizes.member / GIB,
            "seconds": costs.seconds(tflops) if tflops else None,
        }
    return {
        "folder": str(planned.folder),
        "shape": shape(planned),
        "most": hardware.population,
        "unkept": unkept(planned),
        "needs": needs[key],
    }


def main() -> None:
    """Answer requests until standard input ends."""
    processes.exit_with_parent(os.environ)
    os.environ["HF_HUB_OFFLINE"] = "1"
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    needs: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        planned: list[dict[str, Any]] = []
        for index, text in json.loads(line)["plan"].items():
            told: dict[str, Any] = {"folder": "", "shape": None, "most": 1, "refused": None}
            try:
                told |= facts(processes.read_text(text), needs)
            except UserError as error:
                told["refused"] = str(error)
            planned.append({"index": int(index), **told})
        print(json.dumps(planned), file=answers, flush=True)


if __name__ == "__main__":
    main()
