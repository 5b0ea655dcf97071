"""A repository of the hub at a revision, and the commit that a run has of it.

A preset names a revision such as `main`, which moves. A run loads the commit that the revision
names when it starts, and records it. The run id depends on the revision and not on the commit: an
id needs no network, and the same command finds an interrupted run after the revision has moved.
That run goes on with the commit that it recorded.
"""

import errno
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal
from urllib.request import getproxies

_LOG = logging.getLogger(__name__)


_PAUSES = (1.0, 2.0)  # seconds before the second and the third request
NO_HUB = (AttributeError, LookupError, TypeError)
"""Errors of the hub library where an answer is no hub's. `RuntimeError` is deep nesting, too."""
CONVERTED = "refs/convert/parquet"  # the hub's conversions of data sets
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass
class Repository:
    """A model or data set of the hub.

    Args:
        kind, name, revision: as configured; a revision is a branch, a tag or a commit.
        recorded: the commit of the run that is resumed or repeated; it is loaded.
        commit: the commit that was loaded.
        current: the commit that the revision names now, if the hub responds.
        is_converted: whether the commit is one of the hub's conversions, on a branch of its own.
        group: the part of the configuration that names the repository.
    """

    kind: Literal["model", "dataset"]
    name: str
    revision: str | None
    recorded: str | None = None
    commit: str | None = None
    current: str | None = None
    is_converted: bool = False
    group: str = ""
    _trouble: Exception | None = None
    _sizes: dict[str, int | None] | None = None  # of the current commit

    def __post_init__(self) -> None:
        """Name the usual part of the configuration."""
        self.group = self.group or ("backbone" if self.kind == "model" else "task.source")

    @property
    def key(self) -> str:
        """The name of the repository in the files of a run."""
        return f"{self.kind}s/{self.name}@{self.revision}"

    @property
    def wanted(self) -> str | None:
        """The revision to load: all parts of a run come from one commit."""
        return self.commit or self.recorded or self.current or self.revision

    @property
    def noun(self) -> str:
        """What it is, in words."""
        return "model" if self.kind == "model" else "data set"

    def ask(self) -> Exception | None:
        """Ask the hub, once, for the current commit; return the error if there is no answer."""
        if self.current is None and self._trouble is None:
            go_offline_if_unreachable()
            limit_waiting()
            self._trouble = self._ask()
        return self._trouble

    def _ask(self) -> Exception | None:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError

        for pause in (*_PAUSES, None):
            try:
                info = self._info(HfApi(), self.revision)
                if not COMMIT.fullmatch(info.sha or ""):
                    return ValueError("the answer names no commit")
                self.current, self._sizes = info.sha, _sizes(info)
                break
            except (HTTPError, OSError, ValueError, RuntimeError, *NO_HUB) as error:
                # an error of the hub or a closed connection may pass; a silent hub takes too long
                status, is_closed = answered_status(error), "RemoteProtocol" in type(error).__name__
                if pause is None or not (status >= 500 if status else is_closed):
                    return error
                time.sleep(pause)
        return None

    def _info(self, api: Any, revision: str | None) -> Any:
        """Return what the hub says about a revision; for a model with the sizes of its files."""
        options = {"repo_type": self.kind, "files_metadata": self.kind == "model"}
        return api.repo_info(self.name, revision=revision, **options)

    def listing(self) -> dict[str, int | None] | Exception:
        """Return the files of the wanted commit and their bytes, or why the hub does not say."""
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HTTPError

        if (trouble := self.ask()) is not None:
            return trouble
        if self._sizes is not None and self.wanted == self.current:
            return self._sizes
        try:
            return _sizes(self._info(HfApi(), self.wanted))
        except (HTTPError, OSError, ValueError, RuntimeError, *NO_HUB) as error:
            return error

    @property
    def snapshot(self) -> Path:
        """The folder of the wanted commit in the cache."""
        return self._cache() / "snapshots" / (self.wanted_commit or "none")

    @property
    def wanted_commit(self) -> str | None:
        """The commit to load; without the hub that of the cache."""
        return self.commit or self.recorded or self.current or self.cached()

    def cached(self) -> str | None:
        """Return the commit that the revision named when it was last downloaded."""
        if COMMIT.fullmatch(self.revision or ""):
            return self.revision
        file = self._reference()
        return file.read_text(encoding="utf-8").strip() if file.is_file() else None

    def found(self, commit: str) -> None:
        """Keep the commit that was loaded, and in the cache that it is the revision's."""
        from huggingface_hub import constants

        is_first, self.commit = self.commit is None, commit
        if is_first and self._trouble is not None and not constants.HF_HUB_OFFLINE:
            _LOG.warning(
                "%s: the hub does not give it now; the copy in the cache, commit %s, is used.",
                *(self.name, commit),
            )
        if commit != self.current or commit == self.cached():
            return
        file = self._reference()
        with suppress(OSError):  # a shared cache may be read-only
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}.{os.getpid()}")
            draft.write_text(commit, encoding="utf-8")
            draft.replace(file)

    def _reference(self) -> Path:
        """Return the file in which the hub libraries keep the commit of a revision."""
        return self._cache() / "refs" / (self.revision or "main")

    def _cache(self) -> Path:
        from huggingface_hub import constants

        return Path(constants.HF_HUB_CACHE, f"{self.kind}s--{self.name.replace('/', '--')}")


def model(name: str, revision: str | None) -> Repository:
    """Return the repository of a model."""
    return Repository("model", name, revision)


def _sizes(info: Any) -> dict[str, int | None]:
    """Return the files that an answer lists, and their bytes."""
    files = {file.rfilename: file.size for file in info.siblings or ()}
    if not all(size is None or (type(size) is int and size >= 0) for size in files.values()):
        raise ValueError("the answer has a size that is no number")
    return files


def agree(
    repositories: Sequence[Repository],
    broadcast: Callable[[dict[str, str] | None], dict[str, str] | None],
    *,
    main: bool,
) -> None:
    """Let all ranks of a run load what the first one (`main`) finds: a revision may move."""
    unpinned = [repository for repository in repositories if not repository.recorded]
    commits = None
    if main:
        answers = {r.key: r.cached() if r.ask() else r.current for r in unpinned}
        commits = {key: commit for key, commit in answers.items() if commit}
    commits = broadcast(commits)
    if not main:
        for repository in unpinned:
            repository.recorded = (commits or {}).get(repository.key)


def pin(repositories: Sequence[Repository], commits: Mapping[str, str]) -> None:
    """Let repositories load the recorded commits, by key."""
    for repository in repositories:
        repository.recorded = commits.get(repository.key)
        if repository.recorded:
            repository.commit = None


def loaded(repositories: Sequence[Repository]) -> dict[str, str]:
    """Return the commits that were loaded, by key."""
    return {r.key: r.commit for r in repositories if r.commit}


def warn_of_moved(repositories: Sequence[Repository]) -> None:
    """Warn about each revision that names another commit than the recorded one."""
    for repository in repositories:
        recorded, current = repository.recorded, repository.current
        # a conversion is on another branch than the revision
        comparable = not repository.is_converted or repository.revision == CONVERTED
        if comparable and recorded and current and current != recorded:
            _LOG.warning(
                "%s: %s is now at commit %s; this run keeps its recorded commit %s. "
                "Type %s.revision=%s to run with the new one.",
                *(repository.name, repository.revision, current),
                *(recorded, repository.group, current),
            )


# Whether the hub responds, and how long a request waits for it.

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


def answered_status(error: BaseException) -> int | None:
    """Return the status with which the hub answered; None if there was no answer."""
    return getattr(getattr(error, "response", None), "status_code", None)


@cache
def limit_waiting() -> None:
    """Give each request a limit: the hub library (2.4) waits for a silent hub without end.

    The limit is `HF_HUB_DOWNLOAD_TIMEOUT` seconds (10) without a byte. Limits that a request has
    already are kept.
    """
    from huggingface_hub import get_session, set_client_factory

    session = get_session()  # the library's own: its class and its hooks
    hooks = {name: [*functions] for name, functions in session.event_hooks.items()}
    hooks["request"].append(_limit)
    hooks["response"].append(_check_names)
    client: Any = type(session)
    set_client_factory(partial(client, event_hooks=hooks, follow_redirects=True, timeout=None))


def _check_names(response: Any) -> None:
    """Refuse an answer whose headers would name a file outside the cache.

    Those of a HEAD request do; the ETag of a content server's answer to GET is not looked at.
    """
    if response.request.method != "HEAD":
        return
    for header in ("etag", "x-linked-etag", "x-repo-commit"):
        value = response.headers.get(header, "").removeprefix("W/").strip('"')
        if not _NAME.fullmatch(value):
            raise OSError(f"its answer has {header} {value!r}, which is not the name of a file")


def _limit(request: Any) -> None:
    from huggingface_hub import constants

    limits = request.extensions.get("timeout", {})
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
    kinds = ("connect", "read", "write", "pool")
    request.extensions["timeout"] = {kind: limits.get(kind) or seconds for kind in kinds}


# What happened when the hub failed, and what the user can type: two lines.

_LOGIN = "`hf auth login`, or set HF_TOKEN"
_AGAIN = "Type the command again later; complete files are kept."
_MOST = 300  # characters of a library's own message; it is cut between words
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


def failure(repository: Repository, error: BaseException, lacks: str = "it") -> str:
    """Return why a repository cannot be read, with the remedy on the next line.

    `lacks` is what the cache does not hold.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    while isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # the outer one only says that the cache has no copy either
    happened, remedy = _told(repository, error, lacks)
    if lacks != "it" and lacks not in happened:
        happened = f"the cache does not hold {lacks}; {happened}"
    return f"{repository.name}: {happened}\n{remedy}"


def _told(repository: Repository, error: BaseException, lacks: str) -> tuple[str, str]:
    """Return what happened, and the remedy."""
    from huggingface_hub import constants
    from huggingface_hub import errors as hub

    kind, group, status = repository.noun, repository.group, answered_status(error)
    cache, kinds = constants.HF_HUB_CACHE, [base.__name__ for base in type(error).__mro__]
    text = shorten(str(error) or kinds[0], _MOST, placeholder=" ...").rstrip(".")
    mirror = f" HF_ENDPOINT is {constants.ENDPOINT}." if "HF_ENDPOINT" in os.environ else ""
    # 1. What the hub's library says by its class.
    if isinstance(error, hub.OfflineModeIsEnabled):
        return (
            f"the cache {cache} does not hold {lacks}, and the hub is off (HF_HUB_OFFLINE=1) or "
            "does not respond.",
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
        revision = repository.recorded or repository.revision
        return (
            f"the hub has no revision {revision} of this {kind} ({status}).",
            f"Type {group}.revision=main, or another branch, tag or commit.",
        )
    # 2. Rights, the disk and the proxy.
    if status in (401, 403):
        return (
            f"the hub refuses access ({status}).",
            f"Type {_LOGIN}, with a token that may read this {kind}.",
        )
    if isinstance(error, OSError) and error.errno in _OF_DISK:
        return (
            f"the cache {cache} cannot be used ({text}).",
            "Type HF_HOME=FOLDER before the command, with a folder that can be written.",
        )
    url = next((url for scheme, url in getproxies().items() if scheme != "no"), None)
    if status == 407 or (url and "Connect" in kinds[0]):
        happened = "asks for a name and a password (407)" if status else "does not respond"
        address = (url or "").rpartition("@")[2].rpartition("/")[2]  # without a password
        remedy = "Check HTTPS_PROXY, or type NO_PROXY=HOST."
        return f"the proxy {(url or '').partition('://')[0]}://{address} {happened}.", remedy
    # 3. The connection, which may work later, and an address that never will.
    is_xet = re.search(r"xet|CAS Client", str(error))  # that package raises RuntimeError
    is_lost = status == 404 or kinds[0] == "UnsupportedProtocol"
    may_pass = isinstance(error, hub.HTTPError) or type(error) is OSError
    if not is_xet and (is_lost or not may_pass):
        return f"it cannot be read ({text}).", f"Check {group}.hub and {group}.revision.{mirror}"
    happened = f"the download failed ({text})."
    if status == 429:
        happened = "the hub has had too many requests from here (429)."
    elif status is not None and status >= 500:
        happened = f"the hub has an error of its own ({status})."
    elif any("Timeout" in name for name in kinds):
        seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
        happened = f"the hub sent nothing for {seconds} s, the limit of HF_HUB_DOWNLOAD_TIMEOUT."
    if is_xet:
        return happened, f"{_AGAIN} HF_HUB_DISABLE_XET=1 downloads without xet."
    return happened, f"{_AGAIN}{mirror if status is None else ''}"
