"""Checks once and quickly whether the hub is reachable, so offline machines do not wait."""

import os
import socket
from functools import cache
from urllib.request import getproxies

_HOST = ("huggingface.co", 443)
_SECONDS = 3.0


@cache
def go_offline_if_unreachable() -> None:
    """Switch the hub libraries to their cache if the hub does not respond within 3 seconds.

    Otherwise each library retries for about 23 seconds. A proxy, `HF_ENDPOINT` or `HF_HUB_OFFLINE`
    disables the check.
    """
    if "HF_HUB_OFFLINE" in os.environ or "HF_ENDPOINT" in os.environ or getproxies():
        return
    try:
        socket.create_connection(_HOST, timeout=_SECONDS).close()
    except OSError:
        from huggingface_hub import constants

        os.environ["HF_HUB_OFFLINE"] = "1"  # for libraries not imported yet
        constants.HF_HUB_OFFLINE = True
