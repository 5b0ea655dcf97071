"""Ends a rank when the process that started it is gone."""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping

PARENT = "PTRUN_PARENT"
"""The variable in a rank's environment that holds the id of its parent process."""
_PDEATHSIG = 1  # prctl(2)
_LOOK_EVERY = 1.0  # seconds


def exit_with_parent(env: Mapping[str, str]) -> None:
    """Kill this process as soon as its parent is gone."""
    parent = int(env[PARENT])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=[parent], daemon=True).start()
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(1)
