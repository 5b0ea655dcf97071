"""Show which GPU is enough for a run, and its state, parameters, memory and steps.

Needs no weights, data or network. With --probe it takes a few steps on this machine to estimate
the time of a run, which needs weights and data. With --tflops the time is computed from the data.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.reporting.formats import show

EXAMPLES = """\
  ptrun plan backbone=llama3_1_8b method=lora            which GPU is enough, and what to type
  ptrun plan backbone=t5_xxl_lm_adapt method=prompt_tuning --device-gib 24   does it fit there?
  ptrun plan method=ptuning_v2 seed=1,2,3                three jobs, their state and memory
  ptrun plan method=ptuning_v2 task=boolq data_dir=DIR --tflops 100   hours on another device
"""
_LEAST = {"length": 1, "probe": 2, "device_gib": 1, "tflops": 0.001}

PARSER = Parser("plan", __doc__, EXAMPLES)
PARSER.overrides("overrides of the runs; KEY=A,B makes several")
PARSER.add_argument("-m", "--multirun", action="store_true", help="accepted, has no effect")
PARSER.add_argument("--length", type=int, metavar="N", help="tokens of a text")
PARSER.add_argument("--device-gib", type=float, metavar="G", help="GiB in the name of a card")
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
    show(overview(args.overrides, asked))
