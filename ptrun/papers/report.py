"""Show every number of a paper beside ours.

`ptrun report --paper NAME` is the same command.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun report --paper dpt --table table1       one table of a paper
  ptrun report --paper dpt --to ledger          the paper beside ours: a page, CSV, LaTeX, figures
"""

PARSER = Parser("paper", __doc__, EXAMPLES)
PARSER.add_argument(
    "--paper", metavar="NAME", required=True, help="dpt, ptuning, ptuning_v2, idpg, ppt, peft, all"
)
PARSER.add_argument("--table", metavar="NAME", help="one table or figure of it")
PARSER.add_argument(
    "--outputs", type=Path, default=Path("outputs"), metavar="DIR", help="folder of all runs"
)
PARSER.add_argument("--scale", metavar="NAME", help="runs of +scale=pocket")
PARSER.add_argument("--to", type=Path, metavar="FOLDER", help="write a page, CSV, LaTeX, figures")


def main(arguments: Sequence[str]) -> None:
    """Print the tables of a paper, or write them to files."""
    from ptrun.papers.paper import report
    from ptrun.reporting.formats import show

    show(report(**vars(PARSER.parse(arguments))))


def submission(task: str, labels: Sequence[str], file: Path) -> Any:
    """Return the form of `ptrun predict --submission`: the file of a leaderboard."""
    from ptrun.papers.submission import Submission

    return Submission(task, labels, file)
