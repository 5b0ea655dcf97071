"""Show the differences between two runs, and whether they are expected.

Prints settings, data, versions, metrics and the examples with different predictions. The last
lines say whether the two runs should be equal, and which difference comes first.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser
from ptrun.errors import UserError, folded, readable

EXAMPLES = """\
  ptrun diff outputs/runs/A outputs/runs/B     two run folders
  ptrun diff ptuning_v2-pocket fine_tuning     two runs below outputs, by the start of their ids
"""

PARSER = Parser("diff", __doc__, EXAMPLES)
for name in ("A", "B"):
    PARSER.add_argument(
        name.lower(), metavar=name, help="a run folder, a run id or the start of an id"
    )
PARSER.add_argument(
    "--outputs",
    type=Path,
    default=Path("outputs"),
    metavar="DIR",
    help="where ids are looked up",
)


def main(arguments: Sequence[str]) -> None:
    """Print the differences between two runs."""
    args = PARSER.parse(arguments)
    from ptrun.folder.difference import difference
    from ptrun.folder.find import find

    a, b = (find(run, "diff", args.outputs) for run in (args.a, args.b))
    if a.folder.resolve() == b.folder.resolve():
        raise UserError(f"diff: both runs are {a.folder}. Give two different runs.")
    print(folded(readable(difference(a, b))))
