"""Read a split of a data set.

The hub converts data sets to parquet on a branch of its own, with a folder for each subset. It is
read where a repository has only a script, which is never run.
"""

import logging
import re
from collections.abc import Collection
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.hub.failure import failure
from ptrun.hub.reach import from_cache_alone, status
from ptrun.hub.repository import COMMIT, CONVERTED, Repository

_MARK = "ptrun_subset.txt"
_LOG = logging.getLogger(__name__)
_FILE = re.compile(r"([^/]+)/([^/]+)/\d{4}\.parquet")  # of that branch: subset, split


def read(repository: Repository, subset: str | None, split: str) -> Any:
    """Return the rows of a split, as a table of the `datasets` library.

    Without the hub the cached copy is used, if it is that of the wanted commit.

    Raises:
        UserError: it cannot be read, has no such subset or split, or the hub has converted only a
            part of it.
    """
    if Path(repository.name).is_dir():  # `datasets` reads a folder of this name first
        return _split(repository, _of_folder(repository, subset), split)
    trouble = repository.ask()
    if trouble and repository.recorded is None and _refused(trouble):
        raise UserError(failure(repository, trouble)) from trouble
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    one = _with_rows(repository)
    options = _options(one, subset, split)
    try:
        with from_cache_alone() if trouble else nullcontext():
            kept = _cached(one, subset) if trouble else None
            builder = kept or _builder(one, options)
    except (DatasetsError, HTTPError, OSError, ValueError, RuntimeError) as error:
        raise UserError(failure(one, trouble or error)) from error
    _check_commit(one, builder.hash, trouble)
    one.found(builder.hash)
    repository.found(builder.hash)
    return _split(repository, builder, split)


def _of_folder(repository: Repository, subset: str | None) -> Any:
    """Return what reads a folder.

    Raises:
        UserError: it cannot be read, or stands by chance where a data set of the hub is named.
    """
    name = repository.name
    if not name.startswith((".", "/")):
        raise UserError(
            f"{name}: the current folder has a folder of this name, which would be read in place "
            f"of the hub's.\nRename it, or type task.source.hub=./{name} to read it."
        )
    try:
        return _builder(repository, {"name": subset})
    except (ValueError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{name}: cannot be read ({reason}).") from error


def _with_rows(repository: Repository) -> Repository:
    """Return a repository, or the hub's conversion of it if it has a script for its rows.

    Raises:
        UserError: the hub has no conversion, or the user wants the commit of the script.
    """
    script = f"{repository.name.rpartition('/')[2]}.py"
    names = repository.listing()
    if isinstance(names, Exception):
        other = Repository("dataset", repository.name, CONVERTED, repository.recorded)
        is_other = repository.wanted_commit is None and other.cached()
        return other if is_other else repository
    if script not in names:
        return repository
    other = Repository("dataset", repository.name, CONVERTED)
    if COMMIT.fullmatch(repository.revision or "") or other.ask():
        raise UserError(
            f"{repository.name}: its rows are made by {script} at revision {repository.revision}, "
            "and ptrun runs no script.\n"
            f"Type task.source.revision={CONVERTED}, if the hub has converted it."
        )
    _LOG.info("%s has a script; its rows are those of %s.", repository.name, CONVERTED)
    return other


def _options(repository: Repository, subset: str | None, split: str) -> dict[str, str | None]:
    """Return how the library is told the subset: by name, or as a folder of the conversion.

    Raises:
        UserError: the conversion has no such subset, several without a name, or only a part.
    """
    names = repository.listing()
    names = {} if isinstance(names, Exception) else names
    found = {own[1]: own for own in map(_FILE.fullmatch, names) if own}
    if not found or "README.md" in names:
        return {"name": subset}
    repository.is_converted = True
    if subset not in found and (subset is not None or len(found) > 1):
        raise UserError(
            f"{repository.name}: no subset {subset} at {CONVERTED}; there are "
            f"{', '.join(sorted(found))}.\nType task.source.subset=NAME."
        )
    _check_whole(repository, names, subset or next(iter(found)), split)
    return {"data_dir": subset} if subset else {"name": None}


def _check_whole(repository: Repository, names: Collection[str], subset: str, split: str) -> None:
    """Raise a UserError if the hub has converted only the first rows of a split."""
    if any(name.startswith(f"{subset}/partial-{split}/") for name in names):
        raise UserError(
            f"{repository.name}: {CONVERTED} has only a part of split {split} of {subset} "
            f"({subset}/partial-{split}).\n"
            "Type task.source.hub= with a repository that has all rows."
        )


def _split(repository: Repository, builder: Any, split: str) -> Any:
    """Return the rows of a split.

    Raises:
        UserError: there is no such split.
    """
    try:
        return builder.as_dataset(split=split)
    except ValueError as error:
        raise UserError(
            f"{repository.name}: no split {split!r}; this data set has "
            f"{', '.join(builder.info.splits or {})}.\nType task.splits with one of them."
        ) from error


def _builder(repository: Repository, options: dict[str, str | None]) -> Any:
    """Return what reads a data set; its files are in the cache.

    Raises:
        UserError: it has no such subset.
    """
    from datasets import load_dataset_builder

    try:
        builder = load_dataset_builder(repository.name, revision=repository.wanted, **options)
    except ValueError as error:
        if "Config" not in str(error):
            raise
        text = " ".join(str(error).split())
        raise UserError(
            f"{repository.name}: no subset {options['name']} ({text})\n"
            "Type task.source.subset=NAME."
        ) from error
    builder.download_and_prepare()
    if subset := options.get("data_dir"):  # the copy's own name does not say so
        with suppress(OSError):  # a shared cache may be read-only
            Path(builder.cache_dir, _MARK).write_text(subset, encoding="utf-8")
    return builder


def _cached(repository: Repository, subset: str | None) -> Any:
    """Return what reads the copy of the wanted commit; None if the cache has none.

    Without the hub, `load_dataset_builder` reads the latest copy, of whatever commit.
    """
    from datasets import config
    from datasets.naming import camelcase_to_snakecase
    from datasets.packaged_modules.cache.cache import Cache

    owner, _, name = repository.name.rpartition("/")
    place = "___".join([*([owner] if owner else []), camelcase_to_snakecase(name)])
    folder, commit = Path(config.HF_DATASETS_CACHE, place), repository.wanted_commit
    found = list(folder.glob(f"{subset or '*'}/*/{commit}"))
    marks = folder.glob(f"*/*/{commit}/{_MARK}")
    found += [mark.parent for mark in marks if mark.read_text(encoding="utf-8") == subset]
    if len(found) != 1:
        return None
    own, version, _ = found[0].parts[-3:]
    return Cache(
        repo_id=repository.name, dataset_name=name, config_name=own, version=version, hash=commit
    )


def _check_commit(repository: Repository, found: str, trouble: Exception | None) -> None:
    """Refuse rows of another commit: if `datasets` cannot read one, it reads a copy of another.

    Raises:
        UserError: these rows are not of the wanted commit.
    """
    wanted = repository.commit or repository.recorded or repository.current or repository.cached()
    if wanted and found != wanted:
        why = "and the hub does not give it now" if trouble else "but its files cannot be read"
        raise UserError(
            f"{repository.name}: commit {wanted} is needed, {why}; the cache has {found}.\n"
            f"Type task.source.revision={found}, or the command again later."
        )


def _refused(error: Exception) -> bool:
    """Return whether the hub has answered, so that a cached copy of another revision is no help."""
    answered = status(error)
    return answered is not None and answered < 500
