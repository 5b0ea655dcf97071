"""Show what differs between two runs, and whether it may.

Prints settings, data, versions, metrics and the examples that are predicted differently. The last
lines say whether the two runs should be equal, and what in fact differs first.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun diff outputs/runs/A outputs/runs/B     two run folders
  ptrun diff ptuning_v2-pocket fine_tuning     two runs below outputs, by the start of their ids
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("diff", __doc__, EXAMPLES)
    for name in ("A", "B"):
        made.add_argument(
            name.lower(), metavar=name, help="a run folder, a run id or its beginning"
        )
    made.add_argument(
        "--outputs",
        type=Path,
        default=Path("outputs"),
        metavar="DIR",
        help="where ids are looked up",
    )
    return made


def main(arguments: Sequence[str]) -> None:
    """Print what differs between two runs.

    Raises:
        UserError: one is not there, has not ended or is damaged, or they are the same.
    """
    given = parser().parse(arguments)
    from ptrun.difference.report import difference
    from ptrun.run.find import find

    a, b = (find(run, "diff", given.outputs) for run in (given.a, given.b))
    if a.folder.resolve() == b.folder.resolve():
        raise UserError(f"diff: both runs are {a.folder}. Give two different runs.")
    print(difference(a, b))
