"""Download the files of a model: the small ones, then its weights in one format."""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatch
from functools import cache
from glob import escape
from itertools import islice
from pathlib import Path

from filelock import FileLock

from ptrun.errors import UserError, named
from ptrun.files import opened_tensors
from ptrun.hub.repository import NO_HUB, Repository, failure

_LOG = logging.getLogger(__name__)


_SMALL = ("*.json", "*.txt", "*.model", "*.jinja")
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
    if converted := find(repository, repository.wanted_commit):
        check(converted)
        repository.found(converted.name.partition("-")[0])
        return converted
    folder, weights = snapshot(repository, check)
    is_pickled = weights[0].suffix == ".bin"
    place = convert_once(repository, folder, weights, convert) if is_pickled else folder
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
    _check_disk(repository, sum(todo.values()), out or place(repository), beside)
    check(_download(repository, [n for n in sizes if any(fnmatch(n, p) for p in _SMALL)]))
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
    """Return the names of the weights; refuse those that the user has not allowed."""
    weights = chosen(names)
    if not weights:
        other = sorted(n for n in names if re.search(r"\.(h5|msgpack|gguf|onnx|bin|pt|ot)$", n))
        raise UserError(
            f"{repository.name}: no model.safetensors and no pytorch_model.bin at revision "
            f"{repository.revision}; weights there: {', '.join(other[:3]) or 'none'}.\n"
            f"Type backbone.revision=REVISION with another one. {_LOCAL}"
        )
    if absent := _missing(weights):
        raise UserError(
            f"{repository.name}: its repository lacks {', '.join(absent)} at revision "
            f"{repository.revision}.\nType backbone.revision=REVISION with another one. {_LOCAL}"
        )
    if weights[0].endswith(".bin") and asks:
        check_allowed(repository)
    return weights


def config_folder(repository: Repository) -> Path:
    """Return a folder with the config.json of a hub model, downloaded unless it is cached.

    Raises:
        UserError: the download fails, or the repository has no such file.
    """
    repository.ask()
    sizes = repository.listing()
    there = (repository.snapshot / "config.json").is_file()
    if isinstance(sizes, Exception):
        if not there:
            raise UserError(f"backbone {failure(repository, sizes, 'config.json')} {_LOCAL}")
        return repository.snapshot
    if "config.json" not in sizes:
        raise UserError(
            f"backbone.hub={repository.name}: no config.json at revision {repository.revision}, "
            f"so it is no model of transformers. {_LOCAL}"
        )
    return _download(repository, ["config.json"])


def _cached(
    repository: Repository, trouble: Exception, check: Check, *, asks: bool
) -> tuple[Path, list[Path]]:
    """Return a snapshot and its weights from the cache."""
    folder = repository.snapshot
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    lacks = [] if there else ["it"]
    lacks += [] if "config.json" in there or lacks else ["config.json"]
    weights = chosen(there)
    lacks += [] if weights or "it" in lacks else ["the weights"]
    lacks += [name for name in _missing(weights)]
    cut = [n for n in weights if n.endswith(".safetensors") and not is_whole(folder / n)]
    lacks += [f"a whole {(folder / name).resolve()}" for name in cut]
    if lacks:
        raise UserError(f"backbone {failure(repository, trouble, ', '.join(lacks))} {_LOCAL}")
    check(folder)
    if weights[0].endswith(".bin") and asks:
        check_allowed(repository)
    return folder, [folder / name for name in weights]


def _missing(shards: Sequence[str]) -> list[str]:
    """Return the names of absent shards: each name has the number of all."""
    if not shards or not (parts := re.fullmatch(r"(.+)-\d+-of-(\d+)(\..+)", shards[0])):
        return []
    stem, count, ending = parts.groups()
    every = (f"{stem}-{i:05d}-of-{count}{ending}" for i in range(1, int(count) + 1))
    absent = (name for name in every if name not in shards)
    return [*islice(absent, _MOST_NAMED)]


def _download(repository: Repository, names: Sequence[str]) -> Path:
    """Download files, unless they are cached, and return their folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    options = {"revision": repository.wanted, "allow_patterns": [escape(name) for name in names]}
    try:
        return Path(snapshot_download(repository.name, **options))
    except (HTTPError, OSError, ValueError, RuntimeError, *NO_HUB) as error:  # RuntimeError: xet's
        raise UserError(f"backbone {failure(repository, error)} {_LOCAL}") from error


def _is_there(file: Path, size: int | None) -> bool:
    """Return whether a file is cached; one that was cut is removed, so that it is downloaded."""
    if not file.is_file():
        return False
    nbytes = file.stat().st_size
    if size is None or nbytes == size:
        return True
    _LOG.warning("%s: cut, %s of %s bytes; it is downloaded again.", file.resolve(), nbytes, size)
    file.resolve().unlink()
    file.unlink(missing_ok=True)
    return False


def _check_disk(repository: Repository, download: int, out: Path, beside: float) -> None:
    """Raise a UserError if the disks have no room for a download and its conversion."""
    from huggingface_hub import constants

    needed: dict[int, float] = {}
    for place, nbytes in ((Path(constants.HF_HUB_CACHE), download), (out, beside)):
        there = next(folder for folder in (place, *place.parents) if folder.exists())
        disk = there.stat().st_dev
        needed[disk] = needed.get(disk, 0) + nbytes
        free = shutil.disk_usage(there).free
        if nbytes and free < needed[disk] + _SPARE_BYTES:
            parts = f"{download / 1e9:.1f} GB to download, {beside / 1e9:.1f} GB to convert"
            raise UserError(
                f"{repository.name}: {place} has {free / 1e9:.1f} GB free; needed are {parts}.\n"
                f"{ROOM}"
            )


# Models whose repository has only pickled weights: converted once, and kept beside the cache.
#
#     <HF_HOME>/ptrun/converted/<id>/<commit>-<hash of the source>/
#
# The folder holds safetensors, configuration and tokenizer; the pickles may be deleted. Presets of
# ptrun are converted without a question; for another id the user types `allow_bin=true`.

ALLOW = "PTRUN_ALLOW_BIN"  # set by `allow_bin=true`; the ranks of a run inherit it

_PACKAGE = Path(__file__).resolve().parent.parent
_CONF = (_PACKAGE / "conf", _PACKAGE.parent / "conf")  # installed, and in a checkout
ROOM = "Type HF_HOME=FOLDER before the command, with a folder on a larger disk."
_OTHER = "Type backbone.revision=REVISION with another one, or backbone.path=FOLDER."
_ID = re.compile(r"(?![.-])[\w.-]+(/(?![.-])[\w.-]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_allowed(repository: Repository) -> None:
    """Refuse the pickled weights of a model that is no preset, unless the user allows them.

    Raises:
        UserError: they are not allowed.
    """
    if repository.name not in presets() and os.environ.get(ALLOW) != "true":
        raise UserError(
            f"{repository.name}: only pickled weights (.bin) at revision {repository.revision}, "
            "and no preset of ptrun. ptrun reads tensors from them and runs no code.\n"
            "Type allow_bin=true to convert them once."
        )


@cache
def presets() -> frozenset[str]:
    """Return the hub ids of ptrun's own backbones."""
    files = (file for conf in _CONF for file in (conf / "backbone").glob("*.yaml"))
    text = "\n".join(file.read_text("utf-8") for file in files)
    return frozenset(re.findall(r"^hub: *(\S+/\S+)", text, re.MULTILINE))


def place(repository: Repository) -> Path:
    """Return the folder of the conversions of a model."""
    from huggingface_hub import constants

    return Path(constants.HF_HOME, "ptrun", "converted", *repository.name.split("/"))


def find(repository: Repository, commit: str | None) -> Path | None:
    """Return the conversion of a commit, if there is one; a damaged one is removed."""
    if commit is None or not _ID.fullmatch(repository.name):  # a name may lead out of the folder
        return None
    for folder in sorted(place(repository).glob(f"{commit}-*")):
        files = list(folder.glob("*.safetensors"))
        if files and all(map(is_whole, files)):
            return folder
        shutil.rmtree(folder, ignore_errors=True)
    return None


def convert_once(
    repository: Repository,
    snapshot: Path,
    weights: list[Path],
    write: Callable[[Path, Path], object],
) -> Path:
    """Convert a snapshot, unless another process has just done it; return the new folder.

    `write` reads a snapshot and writes a folder of safetensors.

    Raises:
        UserError: a file is not that of the hub, or cannot be converted.
    """
    out = place(repository)
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    with FileLock(out / ".lock"):
        if (converted := find(repository, snapshot.name)) is not None:
            return converted
        source = hashlib.sha256("".join(map(_checked, weights)).encode()).hexdigest()[:16]
        new = out / f"{snapshot.name}-{source}"
        size = sum(file.stat().st_size for file in weights) / 1e9
        _LOG.info(
            "%s: its pickled weights (%.1f GB) are converted once, into %s",
            *(repository.name, size, new),
        )
        try:
            write(snapshot, new)
        except UserError as error:
            remedy = ROOM if isinstance(error.__cause__, OSError) else _OTHER
            reason = str(error).partition("\n")[0]
            raise UserError(f"{repository.name}: {reason}\n{remedy}") from error
    return new


def is_whole(file: Path) -> bool:
    """Return whether a safetensors file has the bytes that its header names."""
    try:
        with opened_tensors(file, links=True):
            return True
    except (ValueError, OSError):
        return False


def _checked(file: Path) -> str:
    """Return the hash of a file; the cache names a large file by the hub's hash of it."""
    blob = file.resolve()
    with blob.open("rb") as opened:
        hashed = hashlib.file_digest(opened, "sha256").hexdigest()
    if _SHA256.fullmatch(blob.name) and blob.name != hashed:
        blob.unlink()
        raise UserError(
            f"{file}: its bytes are not those of the hub (SHA-256 {hashed[:16]}...). It was "
            "removed.\nType the same command again with a network: it downloads this file again."
        )
    return hashed
