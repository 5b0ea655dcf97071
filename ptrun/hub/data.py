"""Read a split of a data set."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ptrun.errors import UserError
from ptrun.hub.failure import failure
from ptrun.hub.reach import from_cache_alone, status
from ptrun.hub.repository import Repository


def read(repository: Repository, subset: str | None, split: str) -> Any:
    """Return the rows of a split, as a table of the `datasets` library.

    Without the hub the cached copy is used, if it is that of the wanted commit.

    Raises:
        UserError: it cannot be read, or has no such subset or split.
    """
    if Path(repository.name).is_dir():  # `datasets` reads a folder of this name first
        return _split(repository, _builder(repository, subset), split)
    trouble = repository.ask()
    if trouble and repository.recorded is None and _refused(trouble):
        raise UserError(failure(repository, trouble)) from trouble
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError

    try:
        with from_cache_alone() if trouble else nullcontext():
            kept = _cached(repository, subset) if trouble else None
            builder = kept or _builder(repository, subset)
    except (DatasetsError, HTTPError, OSError, ValueError, RuntimeError) as error:
        raise UserError(failure(repository, trouble or error)) from error
    _check_commit(repository, builder.hash, trouble)
    repository.found(builder.hash)
    return _split(repository, builder, split)


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


def _builder(repository: Repository, subset: str | None) -> Any:
    """Return what reads a data set; its files are in the cache.

    Raises:
        UserError: it has no such subset.
    """
    from datasets import load_dataset_builder

    try:
        builder = load_dataset_builder(repository.name, subset, revision=repository.wanted)
    except ValueError as error:
        if "Config" not in str(error):
            raise
        text = " ".join(str(error).split())
        raise UserError(
            f"{repository.name}: no subset {subset} ({text})\nType task.source.subset=NAME."
        ) from error
    builder.download_and_prepare()
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
    commit = repository.commit or repository.recorded or repository.cached()
    found = list(Path(config.HF_DATASETS_CACHE, place).glob(f"{subset or '*'}/*/{commit}"))
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
