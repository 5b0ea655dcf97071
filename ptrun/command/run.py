"""Do one run, a sweep (-m), or all runs of a paper's table (experiment=).

This is the default command: `ptrun KEY=VALUE` is `ptrun run KEY=VALUE`. A finished run is skipped,
and an interrupted one resumes. rerun=true repeats a run and keeps the old one.
"""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptrun.config.arguments import Parser, load
from ptrun.errors import MemoryRanOut, UserError, folded
from ptrun.hardware.environment import is_main_rank

if TYPE_CHECKING:
    from ptrun.config.compose import Composed

EXAMPLES = """\
  ptrun method=ptuning_v2 task=conll03 data_dir=DIR      train a deep prompt on CoNLL-2003
  ptrun -m method=fine_tuning,dpt seed=1,2,3             six runs, one after another
  ptrun experiment=dpt/table1 cell='roberta*' seeds=1    runs of a table; check=true only checks
"""
OFTEN = """\
often set: seed, data_dir, backbone.path, outputs, name, start, continue, rerun=true,
  train.lr, train.epochs, train.max_steps, train.batch_size, method.length, hardware.precision,
  allow_bin=true (converts pickled weights)

"""

PARSER = Parser("run", __doc__, EXAMPLES)
PARSER.epilog = OFTEN + str(PARSER.epilog)
PARSER.overrides("a group (method, backbone, task, ...; see ptrun list) or a key inside one")
PARSER.add_argument("-m", "--multirun", action="store_true", help="a sweep over KEY=A,B,C")
PARSER.add_argument("--cfg", choices=["job"], help="print the composed configuration")
PARSER.add_argument("--package", metavar="PATH", help="with --cfg: print this part alone")


def main(arguments: Sequence[str]) -> None:
    """Do the runs that a command line describes."""
    args = PARSER.parse(arguments)
    if args.multirun and args.cfg:
        raise UserError("run: -m has no --cfg; leave out -m to see one run.")
    if any(override.startswith("experiment=") for override in args.overrides):
        if (tables := load("experiment")) is None:
            raise UserError("experiment=...: no installed package has the command experiment.")
        tables.main(arguments)
    elif args.cfg:
        import yaml

        from ptrun.config.compose import compose_run
        from ptrun.config.overriding import at

        config = compose_run(args.overrides).config
        part = at(config, args.package) if args.package else config
        print(yaml.safe_dump(part, sort_keys=False, allow_unicode=True), end="")
    elif args.multirun:
        from ptrun.folder.result import read
        from ptrun.sweeps.sweep import do, of_line, options_of

        options, jobs = options_of(args.overrides), of_line(args.overrides)
        done = do(jobs, options)
        folders = dict.fromkeys(job.folder for job in jobs if job.stage in ("finished", "failed"))
        ended = {folder: run for folder in folders if folder and (run := read(folder))}
        if ended and not options.dry_run:
            from ptrun.reporting.formats import show
            from ptrun.reporting.table import of_runs

            show(of_runs(ended, f"{len(ended)} run{'s' * (len(ended) != 1)}"))
        if not done:
            sys.exit(1)
    else:
        from ptrun.config.compose import compose_run

        _do(compose_run(args.overrides), args.overrides)


def _do(composed: "Composed", overrides: Sequence[str]) -> None:
    """Do a run and print its summary; of several ranks only the first prints."""
    from ptrun.folder.result import summary
    from ptrun.runs.launch import launch  # imports torch
    from ptrun.tracking.trackers import where

    try:
        done = launch(composed)
    except MemoryRanOut as error:
        from ptrun.planning.overview import fitting

        raise UserError("\n".join([str(error), *fitting(overrides)])) from None
    if is_main_rank():
        print(folded(summary(done, composed.outputs / composed.name)))
        folder = composed.outputs / composed.name / done.run_id
        sys.stderr.write(where(composed.tracking, [folder]))
