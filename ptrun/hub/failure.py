"""What happened when the hub failed, and what the user can type: two lines."""

import errno
import os
import re
from textwrap import shorten
from urllib.request import getproxies

from ptrun.hub import reach
from ptrun.hub.repository import Repository

_LOGIN = "`hf auth login`, or set HF_TOKEN"
_AGAIN = "Type the command again later; complete files are kept."
_MOST = 300  # characters of a library's own message; it is cut between words


def failure(repository: Repository, error: BaseException, lacks: str = "it") -> str:
    """Return why a repository cannot be read, with the remedy on the next line.

    `lacks` is what the cache does not hold.
    """
    happened, remedy = _told(repository, _root(error), lacks)
    if lacks != "it" and lacks not in happened:
        happened = f"the cache does not hold {lacks}; {happened}"
    return f"{repository.name}: {happened}\n{remedy}"


def _told(repository: Repository, error: BaseException, lacks: str) -> tuple[str, str]:
    """Return what happened, and the remedy."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub

    kind, group, status = repository.noun, repository.group, reach.status(error)
    revision = repository.recorded or repository.revision
    if isinstance(error, hub.OfflineModeIsEnabled):
        return (
            f"the cache {constants.HF_HUB_CACHE} does not hold {lacks}, and the hub is off "
            "(HF_HUB_OFFLINE=1) or does not respond.",
            "Type the command once with a network and HF_HUB_OFFLINE=0 to download it.",
        )
    if isinstance(error, hub.GatedRepoError):
        return (
            f"this {kind} is gated: its owner grants access ({status}).",
            f"Ask for access on its page, then type {_LOGIN}.",
        )
    if isinstance(error, hub.RepositoryNotFoundError):
        return (
            f"the hub has no such {kind}, or it is private ({status}).",
            f"Check {group}.hub; for a private {kind} type {_LOGIN}.",
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return (
            f"the hub has no revision {revision} of this {kind} ({status}).",
            f"Type {group}.revision=main, or another branch, tag or commit.",
        )
    if status in (401, 403):
        return (
            f"the hub refuses access ({status}).",
            f"Type {_LOGIN}, with a token that may read this {kind}.",
        )
    if _is_local(error):
        return (
            f"the cache {constants.HF_HUB_CACHE} cannot be used ({_text(error)}).",
            "Type HF_HOME=FOLDER before the command, with a folder that can be written.",
        )
    proxy = _proxy()
    if status == 407 or (proxy and "Connect" in type(error).__name__):
        happened = "asks for a name and a password (407)" if status else "does not respond"
        return f"the proxy {proxy} {happened}.", "Check HTTPS_PROXY, or type NO_PROXY=HOST."
    wrong_address = status == 404 or type(error).__name__ == "UnsupportedProtocol"
    mirror = f" HF_ENDPOINT is {constants.ENDPOINT}." if "HF_ENDPOINT" in os.environ else ""
    if re.search(r"xet|CAS Client", str(error)):  # that package raises RuntimeError
        return _broken(error, status), f"{_AGAIN} HF_HUB_DISABLE_XET=1 downloads without xet."
    if not wrong_address and (isinstance(error, hub.HTTPError) or type(error) is OSError):
        return _broken(error, status), f"{_AGAIN}{mirror if status is None else ''}"
    remedy = f"Check {group}.hub and {group}.revision.{mirror}"
    return f"it cannot be read ({_text(error)}).", remedy


def _is_local(error: BaseException) -> bool:
    """Return whether the disk or its rights are wrong, and not a connection."""
    codes = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)
    return isinstance(error, OSError) and error.errno in codes


def _proxy() -> str | None:
    """Return the address of the proxy, without a password."""
    url = next((url for kind, url in getproxies().items() if kind != "no"), None)
    return url and f"{url.partition('://')[0]}://{url.rpartition('@')[2].rpartition('/')[2]}"


def _broken(error: BaseException, status: int | None) -> str:
    """Return what went wrong on the way."""
    from huggingface_hub import constants

    if status == 429:
        return "the hub has had too many requests from here (429)."
    if status is not None and status >= 500:
        return f"the hub has an error of its own ({status})."
    if any("Timeout" in one.__name__ for one in type(error).__mro__):
        return (
            f"the hub sent nothing for {constants.HF_HUB_DOWNLOAD_TIMEOUT} s, the limit of "
            "HF_HUB_DOWNLOAD_TIMEOUT."
        )
    return f"the download failed ({_text(error)})."


def _text(error: BaseException) -> str:
    """Return an error as one line without a full stop."""
    return shorten(str(error) or type(error).__name__, _MOST, placeholder=" ...").rstrip(".")


def _root(error: BaseException) -> BaseException:
    """Return the error below those that only say that the cache has no copy either."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__
    return error
