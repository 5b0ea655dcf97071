"""Repeat a run and show the differences to the old one.

The new run goes into outputs/reruns, into a folder that has no result yet. The old run is only
read. The same command resumes an interrupted rerun.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser
from ptrun.errors import RunFailed, readable
from ptrun.hardware.environment import is_main_rank

if TYPE_CHECKING:
    from ptrun.folder.find import RunFolder

EXAMPLES = """\
  ptrun rerun outputs/runs/RUN_ID                      a folder, an id, or the start of an id
  ptrun rerun RUN data_dir=DIR backbone.path=FOLDER    where data and weights are now
  ptrun rerun RUN hardware=gpu train.lr=1e-2           with other settings
"""

PARSER = Parser("rerun", __doc__, EXAMPLES)
PARSER.add_argument("run", metavar="RUN", help="a run folder, a run id or the start of an id")
PARSER.overrides("changes to the run; outputs=DIR is also where RUN is looked up")


def main(arguments: Sequence[str]) -> None:
    """Repeat a run and print the differences."""
    args = PARSER.parse(arguments)
    from ptrun.folder.find import find
    from ptrun.folder.result import summary
    from ptrun.runs.launch import launch
    from ptrun.runs.plan import plan
    from ptrun.runs.rerun import again

    outputs = [o.partition("=")[2] for o in args.overrides if o.startswith("outputs=")]
    old = find(args.run, "rerun", Path(*outputs[-1:] or ["outputs"]))
    composed = again(old, args.overrides)
    folder = plan(composed).folder
    try:
        done = launch(composed)
    except RunFailed:
        _print_difference(old, folder)
        raise
    _print_difference(old, folder, summary(done, folder.parent))


def _print_difference(old: "RunFolder", folder: Path, *lines: str) -> None:
    """Print the differences; of several ranks only the first prints."""
    from ptrun.folder.difference import difference
    from ptrun.folder.find import find

    if is_main_rank():
        print(*lines, readable(difference(old, find(str(folder), "rerun"))), sep="\n")
