"""A repository of the hub at a revision, and the commit that a run has of it.

A preset names a revision such as `main`, which moves. A run loads the commit that the revision
names when it starts, and records it. The run id depends on the revision and not on the commit: an
id needs no network, and the same command finds an interrupted run after the revision has moved.
That run goes on with the commit that it recorded.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ptrun.hub.reach import go_offline_if_unreachable, limit_waiting, status

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
    """

    kind: Literal["model", "dataset"]
    name: str
    revision: str | None
    recorded: str | None = None
    commit: str | None = None
    current: str | None = None
    is_converted: bool = False
    _trouble: Exception | None = None
    _sizes: dict[str, int | None] | None = None  # of the current commit

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

    @property
    def group(self) -> str:
        """The part of the configuration that names the repository."""
        return "backbone" if self.kind == "model" else "task.source"

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
                if pause is None or not _passing(error):
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
        first, self.commit = self.commit is None, commit
        if first and self._trouble is not None and not _off():
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


def _passing(error: Exception) -> bool:
    """Return whether the same request may succeed soon: an error of the hub, a closed connection.

    A silent hub is asked once, because each request takes as long as the limit.
    """
    answered = status(error)
    return answered >= 500 if answered else "RemoteProtocol" in type(error).__name__


def _off() -> bool:
    """Return whether the hub is switched off, by the user or because nothing responds there."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def agree(
    repositories: Sequence[Repository],
    broadcast: Callable[[dict[str, str] | None], dict[str, str] | None],
    *,
    main: bool,
) -> None:
    """Let all ranks of a run load what the first one (`main`) finds: a revision may move."""
    new = [one for one in repositories if not one.recorded]
    named = None
    if main:
        found = {one.key: one.cached() if one.ask() else one.current for one in new}
        named = {key: commit for key, commit in found.items() if commit}
    named = broadcast(named)
    if not main:
        for one in new:
            one.recorded = (named or {}).get(one.key)


def pin(repositories: Sequence[Repository], commits: Mapping[str, str]) -> None:
    """Let repositories load the recorded commits, by key."""
    for one in repositories:
        one.recorded = commits.get(one.key)
        if one.recorded:
            one.commit = None


def loaded(repositories: Sequence[Repository]) -> dict[str, str]:
    """Return the commits that were loaded, by key."""
    return {one.key: one.commit for one in repositories if one.commit}


def warn_of_moved(repositories: Sequence[Repository]) -> None:
    """Warn about each revision that names another commit than the recorded one."""
    for one in repositories:
        own_branch = not one.is_converted or one.revision == CONVERTED
        if own_branch and one.recorded and one.current and one.current != one.recorded:
            _LOG.warning(
                "%s: %s is now at commit %s; this run keeps its recorded commit %s. "
                "Type %s.revision=%s to run with the new one.",
                *(one.name, one.revision, one.current, one.recorded, one.group, one.current),
            )
