"""Search hyperparameters on dev, and score the winner on fresh seeds.

A key with several values or a range is searched. Trials never score test examples; those of a round
share passes. Trials below the median of earlier ones are abandoned. The same command goes on.
"""

from collections.abc import Sequence
from typing import Any

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun search task=sst2 'train.lr=tag(log,interval(1e-4,1e-1))' method.length=5,20,50
  ptrun search method=prompt_tuning train.lr=1e-3,1e-2,1e-1 --sampler grid --seeds 3
"""
_SAMPLERS = ("tpe", "random", "grid")

PARSER = Parser("search", __doc__, EXAMPLES)
PARSER.overrides("overrides of all trials; KEY=A,B, range(), interval() and tag(log,...) search")
PARSER.add_argument("--trials", type=int, default=24, metavar="N", help="trials (default 24)")
PARSER.add_argument("--together", type=int, default=8, metavar="N", help="of a round (default 8)")
PARSER.add_argument("--seeds", type=int, default=5, metavar="N", help="of the winner (default 5)")
PARSER.add_argument("--sampler", choices=_SAMPLERS, default="tpe", help="default tpe")


def main(arguments: Sequence[str]) -> None:
    """Do a search and print its report."""
    args = PARSER.parse(arguments)
    for name in ("trials", "together", "seeds"):
        if getattr(args, name) < 1:
            PARSER.error(f"--{name} is {getattr(args, name)}: use 1 or more")
    try:
        from ptrun.sweeps.search import search
    except ImportError as error:
        if error.name != "optuna":
            raise
        raise UserError("search needs Optuna. Type: pip install 'ptrun[search]'") from error
    asked = {key: getattr(args, key) for key in ("trials", "together", "seeds", "sampler")}
    report = search(args.overrides, **asked)
    metric, bias = report["metric"], report["expected_selection_bias"]
    dev = report["dev_of_the_winner_in_the_search"]
    chosen = " ".join(f"{k}={v}" for k, v in report["winner"].items() if k != "trial")
    optimism = "" if bias is None else f", about {bias:.1f} too high by selection"
    seeds = ", ".join(map(str, report["fresh_seeds"]))
    print(
        f"winner: trial {report['winner']['trial']} of {report['candidates']} "
        f"({report['abandoned']} abandoned, {report['failed']} failed): {chosen}"
    )
    print(f"  dev {metric} in the search {dev:.2f}{optimism}")
    print(f"  seeds {seeds}: test {metric} {_mean(report['test'])}, dev {_mean(report['dev'])}")


def _mean(spread: dict[str, Any]) -> str:
    deviation = "" if spread["sd"] is None else f" ± {spread['sd']:.2f}"
    return f"{spread['mean']:.2f}{deviation}"
