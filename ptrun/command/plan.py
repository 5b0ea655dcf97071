"""Show the runs of a command: state, parameters, memory on each engine, and what fits.

Needs no weights, data or network. With --probe it takes a few steps on this machine to estimate
the time of a run, which needs weights and data. With --tflops the time is computed from the data.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptrun.command.report import show
from ptrun.config.arguments import Parser

if TYPE_CHECKING:
    from rich.console import Group

    from ptrun.planning.overview import PlanOptions

EXAMPLES = """\
  ptrun plan method=ptuning_v2 seed=1,2,3                three jobs, their state and memory
  ptrun plan backbone=t5_xxl_lm_adapt method=prompt_tuning --device-gib 80   does it fit there?
  ptrun plan experiment=ptuning_v2/table2 --probe 5      a table: runs, groups, disk and hours
  ptrun plan experiment=ptuning_v2/table2 --tflops 100   hours on a device that is not here
"""
_LEAST = {"length": 1, "probe": 2, "device_gib": 1, "tflops": 0.001}

PARSER = Parser("plan", __doc__, EXAMPLES)
PARSER.overrides("overrides of the runs (KEY=A,B makes several), or experiment=PAPER/TABLE")
PARSER.add_argument("-m", "--multirun", action="store_true", help="accepted, has no effect")
PARSER.add_argument("--length", type=int, metavar="N", help="tokens of a text")
PARSER.add_argument("--device-gib", type=float, metavar="G", help="memory of another device")
PARSER.add_argument("--tflops", type=float, metavar="N", help="TFLOP/s that a device sustains")
PARSER.add_argument("--probe", type=int, metavar="N", help="take N steps to estimate the time")


def main(arguments: Sequence[str]) -> None:
    """Print runs and what they need."""
    args = PARSER.parse(arguments)
    for key, least in _LEAST.items():
        value = getattr(args, key)
        if value is not None and not value >= least:
            PARSER.error(f"--{key.replace('_', '-')} is {value}: use {least} or more")
    from ptrun.planning.overview import PlanOptions, overview

    asked = PlanOptions(args.length, args.probe, args.device_gib, args.tflops)
    if any(override.startswith("experiment=") for override in args.overrides):
        show(_table(args.overrides, asked))
    else:
        show(overview(args.overrides, asked))


def _table(overrides: Sequence[str], asked: "PlanOptions") -> "Group":
    """Return the plan of a table."""
    from ptrun.ledger.experiment import jobs, load, parse
    from ptrun.planning.overview import table_overview

    options = parse(overrides)
    experiment = load(options.experiment)
    by_cell: dict[str, list[Sequence[str]]] = {}
    for job in jobs(experiment, options):
        by_cell.setdefault(job.key, []).append(job.overrides)
    return table_overview(f"{experiment.name}: {experiment.title}", by_cell, asked)
