"""Is the hub there? Ask once and quickly, so that a machine without a network does not wait."""

import os
import socket
from functools import cache
from urllib.request import getproxies

_HOST = ("huggingface.co", 443)
_SECONDS = 3.0


@cache
def go_offline_if_unreachable() -> None:
    """Switch the hub libraries to their cache if the hub does not answer within 3 seconds.

    Without this they retry for about 23 seconds each. With a proxy or an endpoint of the user's
    own nothing is decided here.
    """
    if "HF_HUB_OFFLINE" in os.environ or "HF_ENDPOINT" in os.environ or getproxies():
        return
    try:
        socket.create_connection(_HOST, timeout=_SECONDS).close()
    except OSError:
        from huggingface_hub import constants

        os.environ["HF_HUB_OFFLINE"] = "1"  # for libraries not imported yet
        constants.HF_HUB_OFFLINE = True
