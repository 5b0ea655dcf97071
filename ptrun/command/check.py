"""Show the data of a run without training: counts, lengths, overlaps, examples.

Checks the configuration, loads data and tokenizer, and encodes every example as the model
would read it. Reads no weights and writes no run folder.
"""

import sys
from collections.abc import Sequence

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun check task=csv task.train=reviews.csv task.text=review task.label=stars
  ptrun check method=ptuning task=boolq setting=few_shot_32 data_dir=DIR
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser("check", __doc__, EXAMPLES)
    parser.overrides("the overrides of the run; see ptrun run --help")
    return parser


def main(arguments: Sequence[str]) -> None:
    """Print the data of a run.

    Raises:
        UserError: as a run would.
    """
    overrides = parser().parse(arguments).overrides
    from rich.console import Console

    from ptrun.config.compose import compose_run
    from ptrun.exporting.stock_form import afterwards
    from ptrun.planning.preview import preview
    from ptrun.runs.plan import plan

    shown = preview(plan(compose_run(overrides)), afterwards)
    Console(width=None if sys.stdout.isatty() else 160).print(shown)
