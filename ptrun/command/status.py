"""Show how far runs are: finished, running and where, interrupted, failed, new.

Reads run folders alone, so it works beside the processes that do the runs.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser, load
from ptrun.errors import UserError
from ptrun.hardware.environment import imported

EXAMPLES = """\
  ptrun status                                  all runs below outputs
  ptrun status outputs/runs --watch             the same every two seconds
  ptrun status experiment=ptuning_v2/table2     also the runs of the table that are still to do
"""
_EVERY = 2.0  # seconds

PARSER = Parser("status", __doc__, EXAMPLES)
PARSER.add_argument(
    "args", nargs="*", metavar="DIR|KEY=VALUE", help="a folder of runs, or experiment=..."
)
PARSER.add_argument("--json", action="store_true", help="print a JSON list of runs")
PARSER.add_argument("--watch", action="store_true", help="print again every two seconds")


def main(arguments: Sequence[str]) -> None:
    """Print states."""
    args = PARSER.parse(arguments)
    root, expected = _asked(args.args)
    from rich.console import Console

    from ptrun.folder.scan import runs
    from ptrun.sweeps.view import as_json, shown, with_queue

    if not root.is_dir():
        raise UserError(f"status {root}: no such folder. Give the folder of the runs (outputs=).")
    console = Console(width=None if sys.stdout.isatty() else 10_000)  # whole lines in a pipe
    while True:
        states = with_queue(root, runs(root))
        if expected:
            folders = {root / name for name in expected}
            states = [state for state in states if state.folder.parent in folders]
        if args.json:
            print(as_json(states))
        else:
            if args.watch:
                console.clear()
            console.print(shown(root, states, expected))
        if not args.watch:
            return
        imported()
        time.sleep(_EVERY)


def _asked(args: Sequence[str]) -> tuple[Path, dict[str, int]]:
    """Return the folder of runs, and how many each folder of an experiment will have."""
    if not any("=" in arg for arg in args):
        if len(args) > 1:
            raise UserError(f"status takes one folder; leave out {' '.join(args[1:])}.")
        return Path(*args or ["outputs"]), {}
    values = {arg.partition("=")[0]: arg.partition("=")[2] for arg in args}
    if "experiment" not in values:
        raise UserError(f"status {args[0]}: type a folder, or experiment=PAPER/TABLE.")
    if (tables := load("experiment")) is None:
        raise UserError(f"status {args[0]}: no installed package has the command experiment.")
    names = tables.planned(args)
    return Path(values.get("outputs", "outputs")), Counter(names)
