"""List which methods can be combined with which backbones and kinds of task.

A run makes the same check. The reasons for a rejection are below the table. With --steps N, each
valid combination whose data are local trains N steps on a few examples.
"""

import sys
from collections.abc import Sequence

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun grid              every combination, and why some are rejected
  ptrun grid --steps 2    also train two steps of each valid one (minutes)
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser("grid", __doc__, EXAMPLES)
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="train N steps of each")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Print the table of combinations.

    Raises:
        UserError: the number of steps is below 0.
    """
    options = parser()
    steps = options.parse(arguments).steps
    if steps < 0:
        options.error(f"--steps is {steps}: use 0 or more")
    from rich.console import Console

    from ptrun.planning.grid import table

    Console(width=None if sys.stdout.isatty() else 200).print(table(steps))
