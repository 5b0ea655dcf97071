"""Models whose repository has only pickled weights: converted once, and kept beside the cache.

    <HF_HOME>/ptrun/converted/<id>/<commit>-<hash of the source>/

The folder holds safetensors, configuration and tokenizer; the pickles may be deleted. Presets of
ptrun are converted without a question; for another id the user types `allow_bin=true`.
"""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

from filelock import FileLock

from ptrun.errors import UserError, named
from ptrun.hub.repository import Repository

ALLOW = "PTRUN_ALLOW_BIN"  # set by `allow_bin=true`; the ranks of a run inherit it
_LOG = logging.getLogger(__name__)
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


def convert(
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
        if (found := find(repository, snapshot.name)) is not None:
            return found
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
            first = str(error).partition("\n")[0]
            raise UserError(f"{repository.name}: {first}\n{remedy}") from error
    return new


def is_whole(file: Path) -> bool:
    """Return whether a safetensors file has the bytes that its header names."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np"):
            return True
    except (SafetensorError, OSError):
        return False


def _checked(file: Path) -> str:
    """Return the hash of a file; the cache names a large file by the hub's hash of it.

    Raises:
        UserError: the file has another hash.
    """
    blob = file.resolve()
    with blob.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if _SHA256.fullmatch(blob.name) and blob.name != found:
        blob.unlink()
        raise UserError(
            f"{file}: its bytes are not those of the hub (SHA-256 {found[:16]}...). It was "
            "removed.\nType the same command again with a network: it downloads this file again."
        )
    return found
