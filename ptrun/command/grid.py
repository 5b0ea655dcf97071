"""List which methods can be combined with which backbones and kinds of task.

A run makes the same check. The reasons for a rejection are below the table.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.reporting.formats import show

EXAMPLES = """\
  ptrun grid              every combination, and why some are rejected
"""

PARSER = Parser("grid", __doc__, EXAMPLES)


def main(arguments: Sequence[str]) -> None:
    """Print the table of combinations."""
    PARSER.parse(arguments)
    from ptrun.planning.grid import table

    show(table())
