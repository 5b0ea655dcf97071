"""List which methods can be combined with which backbones and kinds of task.

A run makes the same check. The reasons for a rejection are below the table. With --steps N, each
valid combination whose data are local trains N steps on a few examples.
"""

from collections.abc import Sequence

from ptrun.command.report import show
from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun grid              every combination, and why some are rejected
  ptrun grid --steps 2    also train two steps of each valid one (minutes)
"""

PARSER = Parser("grid", __doc__, EXAMPLES)
PARSER.add_argument("--steps", type=int, default=0, metavar="N", help="train N steps of each")


def main(arguments: Sequence[str]) -> None:
    """Print the table of combinations."""
    steps = PARSER.parse(arguments).steps
    if steps < 0:
        PARSER.error(f"--steps is {steps}: use 0 or more")
    from ptrun.planning.grid import table

    show(table(steps))
