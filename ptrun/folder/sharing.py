"""Reading and replacing files that processes on other machines read and replace, as on NFS.

A file that was replaced while it was read is a stale handle there, and a file that is open
elsewhere may refuse to be replaced for a moment. Both pass, so both are tried again.
"""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

_PASSING = (errno.ESTALE, errno.EBUSY, errno.EACCES, errno.EPERM, errno.EAGAIN)
_TRIES, _PAUSE = 5, 0.1  # times; seconds
T = TypeVar("T")


def read_text(file: Path, errors: str = "strict") -> str:
    """Return the text of a file that may be replaced meanwhile; `errors` as in `open`.

    Raises:
        OSError: it cannot be read.
    """
    return _tried(lambda: file.read_text("utf-8", errors), (errno.ESTALE,))


def replace(draft: Path, file: Path) -> None:
    """Put a draft in the place of a file, atomically.

    Raises:
        OSError: it cannot be replaced.
    """
    _tried(lambda: draft.replace(file), _PASSING)


def _tried(act: Callable[[], T], passing: tuple[int, ...]) -> T:
    for _ in range(_TRIES - 1):
        try:
            return act()
        except OSError as error:
            if error.errno not in passing:
                raise
        time.sleep(_PAUSE)
    return act()
