"""`python -m ptrun.rank FILE`: one rank of a run that `ptrun` started on this machine."""

import os
import sys
import time
import traceback
from pathlib import Path

from ptrun.cli import tell_on_stderr
from ptrun.errors import RunFailed, UserError
from ptrun.launch import handover, lifeline

_QUIET = 3.0  # seconds; a rank that failed since another died is ended before it speaks


def main() -> None:
    """Do this rank's share of the run that FILE describes; leave word of what ends it."""
    lifeline.hold(os.environ)
    tell_on_stderr()
    file = Path(sys.argv[1])
    try:
        _run(file)
    except (UserError, RunFailed) as error:  # told by the launcher, once for all ranks
        _leave(file.parent, error)
    except Exception as error:
        handover.tell(file.parent, int(os.environ["RANK"]), error)
        time.sleep(_QUIET)
        traceback.print_exc()
        os._exit(1)


def _run(file: Path) -> None:
    from ptrun.run import run

    run(handover.read(file))


def _leave(folder: Path, error: Exception) -> None:
    """Exit at once: libraries that tidy up first would wait for ranks that are gone."""
    handover.tell(folder, int(os.environ["RANK"]), error)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    main()
