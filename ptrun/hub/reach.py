"""Whether the hub responds, and how long a request waits for it."""

import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.request import getproxies

_HOST = ("huggingface.co", 443)
_SECONDS = 3.0
_NAME = re.compile(r"(?!\.+$)[\w.+=:-]*")


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


def status(error: BaseException) -> int | None:
    """Return the status with which the hub answered; None if there was no answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


@contextmanager
def from_cache_alone() -> Iterator[None]:
    """Keep the hub libraries from any request."""
    import datasets.config
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


@cache
def limit_waiting() -> None:
    """Give each request a limit: the hub library (2.4) waits for a silent hub without end.

    The limit is `HF_HUB_DOWNLOAD_TIMEOUT` seconds (10) without a byte. Limits that a request has
    already are kept.
    """
    from huggingface_hub import set_client_factory
    from huggingface_hub.utils._http import default_client_factory

    def client() -> Any:
        made = default_client_factory()
        hooks = made.event_hooks
        made.event_hooks = {
            **hooks,
            "request": [*hooks["request"], _limit],
            "response": [*hooks["response"], _check_names],
        }
        return made

    set_client_factory(client)


def _check_names(response: Any) -> None:
    """Refuse an answer whose headers would name a file outside the cache.

    Those of a HEAD request do; the ETag of a content server's answer to GET is not looked at.

    Raises:
        OSError: the hub library makes paths of these headers.
    """
    if response.request.method != "HEAD":
        return
    for header in ("etag", "x-linked-etag", "x-repo-commit"):
        value = response.headers.get(header, "").removeprefix("W/").strip('"')
        if not _NAME.fullmatch(value):
            raise OSError(f"its answer has {header} {value!r}, which is not the name of a file")


def _limit(request: Any) -> None:
    from huggingface_hub import constants

    own = request.extensions.get("timeout", {})
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
    kinds = ("connect", "read", "write", "pool")
    request.extensions["timeout"] = {kind: own.get(kind) or seconds for kind in kinds}
