"""The files of a local snapshot of a hub repository: one model, in one file or several."""

from pathlib import Path

from torch import Tensor

from ptrun.converting.pickled import open_file
from ptrun.errors import UserError
from ptrun.files import opened, read_json

_PATTERNS = ("*.safetensors", "pytorch_model*.bin")
_WHOLE = ("model.safetensors", "pytorch_model.bin")


class HubFiles:
    """A snapshot; the tensors of all files make a single part.

    Args:
        source: the folder; safetensors are preferred to pickled tensors.
        prefix: a prefix that is removed from the names.

    Raises:
        UserError: the folder has no such files, or lacks one that the index names.
    """

    word = "part"

    def __init__(self, source: Path, prefix: str = ""):
        self.files = _find(source)
        self._prefix = prefix

    def open(self) -> list[dict[str, Tensor]]:
        """Return the single part.

        Raises:
            UserError: a file cannot be opened, or a tensor occurs twice.
        """
        whole: dict[str, Tensor] = {}
        for file in self.files:
            for name, tensor in _read(file).items():
                bare = name.removeprefix(self._prefix)
                if bare in whole:
                    raise UserError(f"{file}: tensor {name} occurs twice in the snapshot.")
                whole[bare] = tensor
        return [whole]


def is_snapshot(source: Path) -> bool:
    """Return whether a folder holds such files."""
    return any(file.is_file() for pattern in _PATTERNS for file in source.glob(pattern))


def _find(source: Path) -> list[Path]:
    if (pattern := next((one for one in _PATTERNS if any(source.glob(one))), None)) is None:
        raise UserError(f"{source}: no weights; expected {' or '.join(_PATTERNS)}.")
    files = sorted(source.glob(pattern))
    if whole := [file for file in files if file.name in _WHOLE]:
        return whole  # other files beside it are variants of it
    named = {name for index in source.glob(f"{pattern}.index.json") for name in _named(index)}
    if absent := sorted(named - {file.name for file in files}):
        raise UserError(f"{source}: {', '.join(absent)} missing, but in the index; download again.")
    return [file for file in files if file.name in named] if named else files


def _named(index: Path) -> set[str]:
    try:
        return set(read_json(index, links=True)["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{index}: not an index of weights; download it again.") from error


def _read(file: Path) -> dict[str, Tensor]:
    try:
        opened(file, links=True).close()
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror}).") from error
    if file.suffix != ".safetensors":
        pickled: dict[str, Tensor] = open_file(file)
        return pickled
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(file)
    except SafetensorError as error:
        raise UserError(f"{file}: damaged or cut short; copy or download it again.") from error
    return tensors
