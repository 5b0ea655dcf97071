"""`python -m ptrun.runs.rank FILE`: one rank of a run that `ptrun` started on this machine."""

import os
import sys
import time
import traceback
from pathlib import Path

from ptrun.errors import RunFailed, UserError, explained
from ptrun.hardware import processes
from ptrun.hardware.environment import importing, log_to_stderr, prepare
from ptrun.tracking.trackers import leave
from ptrun.training import stopping

_QUIET = 3.0  # seconds; if another rank died first, the launcher ends this one before it prints


def main() -> None:
    """Do this rank's share of the run that FILE describes, and record the error that ends it."""
    importing()
    prepare()
    file = Path(sys.argv[1])
    processes.exit_with_parent(os.environ)
    log_to_stderr()
    stopping.install()
    try:
        with stopping.heard():
            _run(file)
    except (UserError, RunFailed) as error:  # the launcher prints it once
        _leave(file.parent, error)
    except stopping.Stopped as stopped:
        os._exit(128 + stopped.number)
    except Exception as error:
        if told := explained(error):
            _leave(file.parent, told)
        processes.write_error(file.parent, int(os.environ["RANK"]), error)
        stopping.uninstall()  # the launcher may end this rank unheard
        time.sleep(_QUIET)
        traceback.print_exc()
        os._exit(1)
    leave(0)


def _run(file: Path) -> None:
    from ptrun.runs.launch import launch_needed
    from ptrun.runs.plan import plan
    from ptrun.runs.recipe import run

    planned = plan(processes.read_text(file.read_text(encoding="utf-8")))
    launch_needed(planned)
    run(planned)


def _leave(folder: Path, error: Exception) -> None:
    """Exit at once: the cleanup of libraries would wait for ranks that have ended."""
    processes.write_error(folder, int(os.environ["RANK"]), error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
