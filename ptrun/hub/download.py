"""Download the files of a model: the small ones, then its weights in one format."""

import logging
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatch
from glob import escape
from itertools import islice
from pathlib import Path

from ptrun.errors import UserError
from ptrun.hub import converted
from ptrun.hub.failure import failure
from ptrun.hub.repository import NO_HUB, Repository

_LOG = logging.getLogger(__name__)
_SMALL = ("*.json", "*.txt", "*.model")
_MOST_NAMED = 5
_FORMATS = (("model", "safetensors"), ("pytorch_model", "bin"))
_LOCAL = "For a local copy type backbone.path=FOLDER."
_SPARE_BYTES = 2**27  # what a run writes beside

Check = Callable[[Path], None]


def fetch(
    repository: Repository, convert: Callable[[Path, Path], object], check: Check = lambda _: None
) -> Path:
    """Download a hub model, unless it is cached, and return its folder of safetensors.

    Pickled weights are converted once. Without the hub the cached copy is used.

    Args:
        repository: the model.
        convert: reads a folder with pickled weights and writes one of safetensors.
        check: refuses a folder with configuration and tokenizer, before weights are downloaded.

    Raises:
        UserError: the download fails, the disk is too full, or there are no weights that may be
            read.
    """
    repository.ask()
    if found := converted.find(repository, repository.wanted_commit):
        check(found)
        repository.found(found.name.partition("-")[0])
        return found
    folder, weights = snapshot(repository, check)
    is_pickled = weights[0].suffix == ".bin"
    place = converted.convert(repository, folder, weights, convert) if is_pickled else folder
    repository.found(folder.name)
    return place


def snapshot(
    repository: Repository,
    check: Check = lambda _: None,
    out: Path | None = None,
    share: float = 1.0,
) -> tuple[Path, list[Path]]:
    """Download a hub model as it is; return the folder, whose name is the commit, and its weights.

    Args:
        repository: the model.
        check: as for `fetch`.
        out: where pickled weights will be converted by the user's own command; null asks for
            permission, and converts them beside the cache.
        share: size of the converted weights over that of the pickled ones.

    Raises:
        UserError: as for `fetch`.
    """
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        return _cached(repository, sizes, check, asks=out is None)
    names, folder = _weights(repository, sizes, asks=out is None), repository.snapshot
    todo = {name: sizes[name] or 0 for name in names if not _is_there(folder / name, sizes[name])}
    beside = sum(sizes[name] or 0 for name in names) * share if names[0].endswith(".bin") else 0
    _check_disk(repository, sum(todo.values()), out or converted.place(repository), beside)
    check(_download(repository, [n for n in sizes if any(fnmatch(n, one) for one in _SMALL)]))
    _download(repository, names)
    for name in names:
        if not _is_there(folder / name, sizes[name]):
            raise UserError(failure(repository, OSError(f"{name} is cut")))
    return folder, [folder / name for name in names]


def chosen(names: Collection[str]) -> list[str]:
    """Return the names of the weights: one file or shards, safetensors before pickles."""
    for stem, ending in _FORMATS:
        if f"{stem}.{ending}" in names:
            return [f"{stem}.{ending}"]
        if shards := [n for n in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n)]:
            return sorted(shards)
    return sorted(name for name in names if re.fullmatch(r"[^/]+\.safetensors", name))


def _weights(repository: Repository, names: Collection[str], *, asks: bool) -> list[str]:
    """Return the names of the weights; refuse those that the user has not allowed.

    Raises:
        UserError: there are none, or none that may be read.
    """
    found = chosen(names)
    if not found:
        other = sorted(n for n in names if re.search(r"\.(h5|msgpack|gguf|onnx|bin|pt|ot)$", n))
        raise UserError(
            f"{repository.name}: no model.safetensors and no pytorch_model.bin at revision "
            f"{repository.revision}; weights there: {', '.join(other[:3]) or 'none'}.\n"
            f"Type backbone.revision=REVISION with another one. {_LOCAL}"
        )
    if absent := _missing(found):
        raise UserError(
            f"{repository.name}: its repository lacks {', '.join(absent)} at revision "
            f"{repository.revision}.\nType backbone.revision=REVISION with another one. {_LOCAL}"
        )
    if found[0].endswith(".bin") and asks:
        converted.check_allowed(repository)
    return found


def _cached(
    repository: Repository, trouble: Exception, check: Check, *, asks: bool
) -> tuple[Path, list[Path]]:
    """Return a snapshot and its weights from the cache.

    Raises:
        UserError: the cache lacks a file; the message names it.
    """
    folder = repository.snapshot
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    lacks = [] if there else ["it"]
    lacks += [] if "config.json" in there or lacks else ["config.json"]
    weights = chosen(there)
    lacks += [] if weights or "it" in lacks else ["the weights"]
    lacks += [name for name in _missing(weights)]
    cut = [n for n in weights if n.endswith(".safetensors") and not converted.is_whole(folder / n)]
    lacks += [f"a whole {(folder / name).resolve()}" for name in cut]
    if lacks:
        raise UserError(f"backbone {failure(repository, trouble, ', '.join(lacks))} {_LOCAL}")
    check(folder)
    if weights[0].endswith(".bin") and asks:
        converted.check_allowed(repository)
    return folder, [folder / name for name in weights]


def _missing(shards: Sequence[str]) -> list[str]:
    """Return the names of absent shards: each name has the number of all."""
    if not shards or not (found := re.fullmatch(r"(.+)-\d+-of-(\d+)(\..+)", shards[0])):
        return []
    stem, count, ending = found.groups()
    every = (f"{stem}-{i:05d}-of-{count}{ending}" for i in range(1, int(count) + 1))
    absent = (name for name in every if name not in shards)
    return [*islice(absent, _MOST_NAMED)]


def _download(repository: Repository, names: Sequence[str]) -> Path:
    """Download files, unless they are cached, and return their folder.

    Raises:
        UserError: the download fails.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    wanted = {"revision": repository.wanted, "allow_patterns": [escape(name) for name in names]}
    try:
        return Path(snapshot_download(repository.name, **wanted))
    except (HTTPError, OSError, ValueError, RuntimeError, *NO_HUB) as error:  # RuntimeError: xet's
        raise UserError(f"backbone {failure(repository, error)} {_LOCAL}") from error


def _is_there(file: Path, size: int | None) -> bool:
    """Return whether a file is cached; one that was cut is removed, so that it is downloaded."""
    if not file.is_file():
        return False
    found = file.stat().st_size
    if size is None or found == size:
        return True
    _LOG.warning("%s: cut, %s of %s bytes; it is downloaded again.", file.resolve(), found, size)
    file.resolve().unlink()
    file.unlink(missing_ok=True)
    return False


def _check_disk(repository: Repository, download: int, out: Path, beside: float) -> None:
    """Raise a UserError if the disks have no room for a download and its conversion."""
    from huggingface_hub import constants

    needed: dict[int, float] = {}
    for place, nbytes in ((Path(constants.HF_HUB_CACHE), download), (out, beside)):
        there = next(one for one in (place, *place.parents) if one.exists())
        disk = there.stat().st_dev
        needed[disk] = needed.get(disk, 0) + nbytes
        free = shutil.disk_usage(there).free
        if nbytes and free < needed[disk] + _SPARE_BYTES:
            parts = f"{download / 1e9:.1f} GB to download, {beside / 1e9:.1f} GB to convert"
            raise UserError(
                f"{repository.name}: {place} has {free / 1e9:.1f} GB free; needed are {parts}.\n"
                f"{converted.ROOM}"
            )
