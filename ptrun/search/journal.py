"""The journal of a study: Optuna's, with a checksum in each line.

Optuna reads a damaged journal as another study, or not at all. So a study is opened behind a check.
"""

import errno
import json
import logging
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

from ptrun.config.readable import visible
from ptrun.files import read_bytes, write_text
from ptrun.folder import digest

_LOG = logging.getLogger(__name__)
_ASIDE = "~"  # ends the name of a damaged journal


class Journal(JournalFileBackend):
    """A journal whose file was checked; a damaged one is set aside, and an empty one begins.

    Trials are proposed as before, and finished runs are not done again: so it is made again.

    Args:
        file: the journal, which need not exist.

    Raises:
        OSError: a link is there; it could lead to any file.
    """

    def __init__(self, file: Path):
        if file.is_symlink():
            raise OSError(errno.EXDEV, "a link in place of the journal", str(file))
        lock = JournalFileSymlinkLock(str(file))
        if file.exists():
            lock.acquire()
            try:
                _check(file)
            finally:
                lock.release()
        super().__init__(str(file), lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append operations."""
        super().append_logs([json.loads(digest.line(log)) for log in logs])


def _check(file: Path) -> None:
    """Cut a last line that a killed process left, and set a damaged file aside."""
    whole, _, rest = read_bytes(file).rpartition(b"\n")
    try:
        for line in whole.decode().split("\n") if whole else ():
            digest.row(line)
    except ValueError as error:
        set_aside(file, error)
    else:
        if rest:
            write_text(file, f"{whole.decode()}\n" if whole else "")


def set_aside(file: Path, error: Exception) -> None:
    """Rename a damaged journal, and say so."""
    reason = visible(str(error).partition("\n")[0])[:200]
    _LOG.warning("%s: damaged (%s); it is made again", file, reason)
    file.replace(file.with_name(file.name + _ASIDE))
