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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal
from urllib.request import getproxies

_LOG = logging.getLogger(__name__)


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
        group: the part of the configuration that names the repository.
    """

    kind: Literal["model", "dataset"]
    name: str
    revision: str | None
    recorded: str | None = None
    commit: str | None = None
    current: str | None = None
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

    def ask(self) -> Exception | None:
        """Ask the hub, once, for the current commit; return the error if there is no answer."""
        if self.current is None and self._trouble is None:
            go_offline_if_unreachable()
            limit_waiting()
            try:
                self.current, self._sizes = self._answer(self.revision)
            except hub_errors() as error:
                self._trouble = error
        return self._trouble

    def _answer(self, revision: str | None) -> tuple[str, dict[str, int | None]]:
        """Return the commit of a revision and its files, for a model with their bytes."""
        from huggingface_hub import HfApi

        options: Any = {"repo_type": self.kind, "files_metadata": self.kind == "model"}
        info = HfApi().repo_info(self.name, revision=revision, **options)
        sizes = {file.rfilename: file.size for file in info.siblings or ()}
        if not COMMIT.fullmatch(info.sha or ""):
            raise ValueError("the answer names no commit")
        if not all(size is None or (type(size) is int and size >= 0) for size in sizes.values()):
            raise ValueError("the answer has a size that is no number")
        return str(info.sha), sizes

    def listing(self) -> dict[str, int | None] | Exception:
        """Return the files of the wanted commit and their bytes, or why the hub does not say."""
        if (trouble := self.ask()) is not None:
            return trouble
        if self._sizes is not None and self.wanted == self.current:
            return self._sizes
        try:
            return self._answer(self.wanted)[1]
        except hub_errors() as error:
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


def hub_errors() -> tuple[type[Exception], ...]:
    """Return the errors of the hub's library, also on an answer that is no hub's; xet's is one."""
    from huggingface_hub.errors import HTTPError

    return HTTPError, OSError, ValueError, RuntimeError, AttributeError, LookupError, TypeError


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
        if recorded and current and current != recorded:
            _LOG.warning(
                "%s: %s is now at commit %s; this run keeps its recorded commit %s. "
                "Type %s.revision=%s to run with the new one.",
                *(repository.name, repository.revision, current),
                *(recorded, repository.group, current),
            )


# Whether the hub responds, and how long a request waits for it.

_HOST = ("huggingface.co", 443)
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
        socket.create_connection(_HOST, timeout=3.0).close()
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
_MOST = 300  # characters of a library's own message; it is cut between words
_OF_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)


def failure(repository: Repository, error: BaseException, lacks: str = "it") -> str:
    """Return why a repository cannot be read, with the remedy on the next line.

    `lacks` is what the cache does not hold.
    """
    from huggingface_hub import constants
    from huggingface_hub import errors as hub

    while isinstance(error, hub.LocalEntryNotFoundError) and error.__cause__ is not None:
        error = error.__cause__  # the outer one only says that the cache has no copy either
    group, status = repository.group, answered_status(error)
    kind = "model" if repository.kind == "model" else "data set"
    text = shorten(str(error) or type(error).__name__, _MOST, placeholder=" ...").rstrip(".")
    if isinstance(error, hub.OfflineModeIsEnabled):
        happened = f"the cache {constants.HF_HUB_CACHE} does not hold {lacks}, and the hub is off "
        happened += "(HF_HUB_OFFLINE=1) or does not respond."
        remedy = "Type the command once with a network and HF_HUB_OFFLINE=0 to download it."
    elif isinstance(error, hub.RepositoryNotFoundError) or status in (401, 403):  # or gated
        happened = f"the hub has no such {kind}, or refuses access ({status}); the owner of a "
        happened += f"gated {kind} grants it."
        remedy = f"Check {group}.hub. Ask for access on its page, then type {_LOGIN}."
    elif isinstance(error, hub.RevisionNotFoundError):
        revision = repository.recorded or repository.revision
        happened = f"the hub has no revision {revision} of this {kind} ({status})."
        remedy = f"Type {group}.revision=main, or another branch, tag or commit."
    elif isinstance(error, OSError) and error.errno in _OF_DISK:
        happened = f"the cache {constants.HF_HUB_CACHE} cannot be used ({text})."
        remedy = "Type HF_HOME=FOLDER before the command, with a folder that can be written."
    elif status == 404 or not (
        isinstance(error, hub.HTTPError) or type(error) in (OSError, RuntimeError)
    ):
        happened = f"it cannot be read ({text})."
        remedy = f"Check {group}.hub and {group}.revision; HF_ENDPOINT is {constants.ENDPOINT}."
    else:
        happened = f"the download failed ({text})."
        remedy = "Type the command again later; complete files are kept. What decides the way: "
        remedy += f"HTTPS_PROXY, HF_ENDPOINT={constants.ENDPOINT}, HF_HUB_DISABLE_XET=1 (no xet), "
        remedy += f"HF_HUB_DOWNLOAD_TIMEOUT={constants.HF_HUB_DOWNLOAD_TIMEOUT} (seconds)."
    if lacks != "it" and lacks not in happened:
        happened = f"the cache does not hold {lacks}; {happened}"
    return f"{repository.name}: {happened}\n{remedy}"
