"""Do a run again, and show the difference to the old one.

The new run goes into outputs/reruns, each time into a folder that holds no result yet. The old run
is only read. An interrupted rerun is resumed by the same command.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import RunFailed
from ptrun.hardware.messages import is_main_rank

if TYPE_CHECKING:
    from ptrun.run.find import Run

EXAMPLES = """\
  ptrun rerun outputs/runs/RUN_ID                      a folder, an id, or the beginning of an id
  ptrun rerun RUN data_dir=DIR backbone.path=FOLDER    where data and weights are now
  ptrun rerun RUN hardware=gpu train.lr=1e-2           with other settings
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("rerun", __doc__, EXAMPLES)
    made.add_argument("run", metavar="RUN", help="a run folder, a run id or its beginning")
    made.overrides("what is different this time; outputs=DIR is where RUN is looked up, too")
    return made


def main(arguments: Sequence[str]) -> None:
    """Do a run again and print what differs.

    Raises:
        UserError: there is no such run, it did not record its configuration, or it is rejected.
        RunFailed: training failed, this time too or only now.
    """
    given = parser().parse(arguments)
    from ptrun.run.find import find
    from ptrun.run.launch import launch
    from ptrun.run.plan import plan
    from ptrun.run.rerun import again
    from ptrun.run.summary import summary

    outputs = [one.partition("=")[2] for one in given.overrides if one.startswith("outputs=")]
    old = find(given.run, "rerun", Path(*outputs[-1:] or ["outputs"]))
    composed = again(old, given.overrides)
    folder = plan(composed).folder
    try:
        done = launch(composed)
    except RunFailed:
        _print_difference(old, folder)
        raise
    _print_difference(old, folder, summary(done, folder.parent))


def _print_difference(old: "Run", folder: Path, *lines: str) -> None:
    """Print what differs; of several ranks the first prints."""
    from ptrun.difference.report import difference
    from ptrun.run.find import find

    if is_main_rank():
        print(*lines, difference(old, find(str(folder), "rerun")), sep="\n")
