"""`ptrun` and `python -m ptrun`: a command in a process of its own."""

from ptrun.cli import main
from ptrun.hardware.environment import done, importing, open_streams


def command() -> None:
    """Do the command of `sys.argv`, and end the process."""
    open_streams()
    importing()
    try:
        main()
    except SystemExit as end:
        done(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    done()


if __name__ == "__main__":
    command()
