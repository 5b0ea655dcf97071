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
from ptrun.hub.repository import COMMIT, Repository, failure, hub_errors

_LOG = logging.getLogger(__name__)


_SMALL = ("*.json", "*.txt", "*.model", "*.jinja")
_MOST_NAMED = 5
_FORMATS = (("model", "safetensors"), ("pytorch_model", "bin"))
_LOCAL = "For a local copy type backbone.path=FOLDER."

Check = Callable[[Path], None]


def fetch(
    repository: Repository, convert: Callable[[Path, Path], object], check: Check = lambda _: None
) -> Path:
    """Download a hub model, unless it is cached, and return its folder of safetensors.

    Pickled weights are converted once, by `convert`. Without the hub the cached copy is used.
    `check` refuses a folder with configuration and tokenizer, before weights are downloaded.
    """
    repository.ask()
    if converted := find(repository, repository.wanted_commit):
        check(converted)
        repository.found(converted.name)
        return converted
    folder, weights = snapshot(repository, check)
    is_pickled = weights[0].suffix == ".bin"
    place = convert_once(repository, folder, weights, convert) if is_pickled else folder
    repository.found(folder.name)
    return place


def snapshot(
    repository: Repository, check: Check = lambda _: None, *, asks: bool = True
) -> tuple[Path, list[Path]]:
    """Download a hub model as it is; return the folder, whose name is the commit, and its weights.

    If it `asks`, pickled weights need the user's permission; `check` is that of `fetch`.
    """
    sizes, folder = repository.listing(), repository.snapshot
    if isinstance(sizes, Exception):
        names = _cached(repository, folder, sizes)
        check(folder)
    elif not (names := chosen(sizes)) or _missing(names):
        other = sorted(n for n in sizes if re.search(r"\.(h5|msgpack|gguf|onnx|bin|pt|ot)$", n))
        there = f"weights there: {', '.join(other[:3]) or 'none'}"
        problem = f"no model.safetensors and no pytorch_model.bin; {there}"
        if names:
            problem = f"its repository lacks {', '.join(_missing(names))}"
        raise UserError(
            f"{repository.name}: {problem} (revision {repository.revision}).\n"
            f"Type backbone.revision=REVISION with another one. {_LOCAL}"
        )
    asks = asks and names[0].endswith(".bin") and repository.name not in presets()
    if asks and os.environ.get(ALLOW) != "true":
        raise UserError(
            f"{repository.name}: only pickled weights (.bin) at revision {repository.revision}, "
            "and no preset of ptrun. ptrun reads tensors from them and runs no code.\n"
            "Type allow_bin=true to convert them once."
        )
    if not isinstance(sizes, Exception):
        for name in names:
            _remove_cut(folder / name, sizes[name])
        check(_download(repository, [n for n in sizes if any(fnmatch(n, p) for p in _SMALL)]))
        _download(repository, names)
    return folder, [folder / name for name in names]


def chosen(names: Collection[str]) -> list[str]:
    """Return the names of the weights: one file or shards, safetensors before pickles."""
    for stem, ending in _FORMATS:
        if f"{stem}.{ending}" in names:
            return [f"{stem}.{ending}"]
        if shards := [n for n in names if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n)]:
            return sorted(shards)
    return sorted(name for name in names if re.fullmatch(r"[^/]+\.safetensors", name))


def config_folder(repository: Repository) -> Path:
    """Return a folder with the config.json of a hub model, downloaded unless it is cached."""
    sizes = repository.listing()
    if isinstance(sizes, Exception):
        if not (repository.snapshot / "config.json").is_file():
            raise UserError(f"backbone {failure(repository, sizes, 'config.json')} {_LOCAL}")
        return repository.snapshot
    if "config.json" not in sizes:
        raise UserError(
            f"backbone.hub={repository.name}: no config.json at revision {repository.revision}, "
            f"so it is no model of transformers. {_LOCAL}"
        )
    return _download(repository, ["config.json"])


def _cached(repository: Repository, folder: Path, trouble: Exception) -> list[str]:
    """Return the names of the weights in the cache; refuse a copy that lacks a file."""
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    weights = chosen(there)
    lacks = sorted({"config.json"} - there)
    lacks += _missing(weights) if weights else ["the weights"]
    if lacks:
        lack = ", ".join(lacks) if there else "it"
        raise UserError(f"backbone {failure(repository, trouble, lack)} {_LOCAL}")
    return weights


def _missing(shards: Sequence[str]) -> list[str]:
    """Return the names of the first absent shards: each name has the number of all."""
    if not shards or not (parts := re.fullmatch(r"(.+)-\d+-of-(\d+)(\..+)", shards[0])):
        return []
    stem, count, ending = parts.groups()
    every = (f"{stem}-{i:05d}-of-{count}{ending}" for i in range(1, int(count) + 1))
    return [*islice((name for name in every if name not in shards), _MOST_NAMED)]


def _download(repository: Repository, names: Sequence[str]) -> Path:
    """Download files, unless they are cached, and return their folder."""
    from huggingface_hub import snapshot_download

    options = {"revision": repository.wanted, "allow_patterns": [escape(name) for name in names]}
    try:
        return Path(snapshot_download(repository.name, **options))
    except hub_errors() as error:
        raise UserError(f"backbone {failure(repository, error)} {_LOCAL}") from error


def _remove_cut(file: Path, size: int | None) -> None:
    """Remove a file that was cut on the disk, so that it is downloaded again."""
    if file.is_file() and size not in (None, nbytes := file.stat().st_size):
        blob = file.resolve()
        _LOG.warning("%s: cut, %s of %s bytes; it is downloaded again.", blob, nbytes, size)
        blob.unlink()
        file.unlink(missing_ok=True)


# Models whose repository has only pickled weights: converted once, and kept beside the cache.
#
#     <HF_HOME>/ptrun/converted/<id>/<commit>/
#
# The folder holds safetensors, configuration and tokenizer; the pickles may be deleted. Presets of
# ptrun are converted without a question; for another id the user types `allow_bin=true`.

ALLOW = "PTRUN_ALLOW_BIN"  # set by `allow_bin=true`; the ranks of a run inherit it

_PACKAGE = Path(__file__).resolve().parent.parent
_CONF = (_PACKAGE / "conf", _PACKAGE.parent / "conf")  # installed, and in a checkout
_OTHER = (
    "Type HF_HOME=FOLDER before the command, with a larger disk, or backbone.revision=REVISION "
    "with another one, or backbone.path=FOLDER."
)
_ID = re.compile(r"(?![.-])[\w.-]+(/(?![.-])[\w.-]+)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")


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
    if not COMMIT.fullmatch(commit or "") or not _ID.fullmatch(repository.name):
        return None  # a name may lead out of the folder
    folder = place(repository) / str(commit)
    files = list(folder.glob("*.safetensors"))
    try:
        for file in files:
            with opened_tensors(file, links=True):
                pass
    except (ValueError, OSError):
        files = []
    if not files:
        shutil.rmtree(folder, ignore_errors=True)
    return folder if files else None


def convert_once(
    repository: Repository,
    snapshot: Path,
    weights: list[Path],
    write: Callable[[Path, Path], object],
) -> Path:
    """Convert a snapshot, unless another process has just done it; return the new folder.

    `write` reads a snapshot and writes a folder of safetensors.
    """
    out = place(repository)
    with named(out):
        out.mkdir(parents=True, exist_ok=True)
    new = out / snapshot.name
    with FileLock(out / ".lock"):
        if find(repository, snapshot.name) is not None:
            return new
        for file in weights:  # the cache names a large file by the hub's hash of it
            blob = file.resolve()
            with blob.open("rb") as opened:
                hashed = hashlib.file_digest(opened, "sha256").hexdigest()
            if _SHA256.fullmatch(blob.name) and blob.name != hashed:
                blob.unlink()
                raise UserError(
                    f"{file}: its bytes are not those of the hub (SHA-256 {hashed[:16]}...). It "
                    "was removed.\nType the same command again with a network: it downloads this "
                    "file again."
                )
        _LOG.info("%s: its pickled weights are converted once, into %s", repository.name, new)
        try:
            write(snapshot, new)
        except UserError as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{repository.name}: {reason}\n{_OTHER}") from error
    return new
