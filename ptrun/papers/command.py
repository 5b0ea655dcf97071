"""Do all runs of a paper's table.

`ptrun experiment=NAME ...` is the same command. Finished runs are skipped, interrupted ones resume,
and a failure does not stop the others. Cells whose weights or data are not here are left out.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun experiment=dpt/table1 cell='roberta*' seeds=1    runs of a table
  ptrun experiment=dpt/table1 check=true                 only check them
  ptrun experiment=ptuning/table1 +scale=pocket          try the table on small models
"""

PARSER = Parser("experiment", __doc__, EXAMPLES)
PARSER.overrides("experiment=NAME, check=true, cell=PATTERN, seeds=N, +scale=pocket; and KEY=VALUE")


def main(arguments: Sequence[str]) -> None:
    """Check or do the runs of a table."""
    if flags := [word for word in arguments if word.startswith("-") and word not in PARSER.flags]:
        raise UserError(f"experiment=... takes only KEY=VALUE; leave out {' '.join(flags)}.")
    overrides = PARSER.parse(arguments).overrides
    if not any(override.startswith("experiment=") for override in overrides):
        PARSER.error("type experiment=PAPER/TABLE")
    from ptrun.papers.running import main as do

    do(overrides)


def planned(arguments: Sequence[str]) -> list[str]:
    """Return the names of all runs of a command line, for `ptrun status experiment=...`."""
    from ptrun.papers.experiment import jobs, load, parse

    options = parse(arguments)
    names = []
    for job in jobs(load(options.experiment), options):
        values = [o.removeprefix("name=") for o in job.overrides if o.startswith("name=")]
        names.append(values[-1])
    return names
