"""List which methods can be combined with which backbones and kinds of task.

A run makes the same check. The reasons for a rejection are below the table.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.errors import UserError
from ptrun.reporting.formats import show

EXAMPLES = """\
  ptrun grid              every combination, and why some are rejected
  ptrun grid backbone=llama3_2_1b       those of a backbone; or backbone.path=FOLDER
"""

PARSER = Parser("grid", __doc__, EXAMPLES)
PARSER.overrides("backbones in place of the shipped ones: backbone=NAME, backbone.path=FOLDER")


def main(arguments: Sequence[str]) -> None:
    """Print the table of combinations."""
    args = PARSER.parse(arguments)
    from ptrun.planning.grid import BACKBONES, table

    for typed in args.overrides:
        if not typed.startswith(("backbone=", "backbone.")):
            raise UserError(f"ptrun grid {typed}: it takes backbones alone, as backbone=NAME.")
    show(table(args.overrides or BACKBONES))
