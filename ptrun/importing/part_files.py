"""The files of a checkpoint of fairseq's model-parallel training.

    FOLDER/model-model_part-0.pt … model-model_part-7.pt, or FOLDER/model.pt if merged

Each holds `{args: argparse.Namespace, model: tensors}`.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.converting.pickled import open_file
from ptrun.errors import UserError
from ptrun.importing.rank_files import numbered

MERGED = "model.pt"
_KEYS, _KIND = ("args", "model"), "a fairseq checkpoint, {args, model}"


class PartFiles:
    """Parts 0, 1, … of one checkpoint, or their merged file.

    Raises:
        UserError: the folder has no such files, or a part is missing.
    """

    word = "part"

    def __init__(self, source: Path):
        self.files = _find(source)
        self.args: list[dict[str, Any]] = []

    def open(self) -> list[dict[str, Tensor]]:
        """Return the tensors of each part; set `args` to their saved settings.

        Raises:
            UserError: a file cannot be opened, or parts are missing at the end.
        """
        parts = [open_file(file, _KEYS, _KIND) for file in self.files]
        self.args = [_settings(part.get("args")) for part in parts]
        saved, count = self.args[0].get("model_parallel_size"), len(parts)
        if saved and saved != count and self.files[0].name != MERGED:
            raise UserError(f"{self.files[0].parent}: {count} parts, but saved as {saved}.")
        return [part["model"] for part in parts]


def _settings(args: object) -> dict[str, Any]:
    """Return the settings of a Namespace or a dict; an empty dict for any other object."""
    settings = vars(args) if isinstance(args, Namespace) else args
    return dict(settings) if isinstance(settings, dict) else {}


def _find(source: Path) -> list[Path]:
    if parts := numbered(source, r"model-model_part-(\d+)\.pt", "model-model_part-{}.pt"):
        return parts
    if (source / MERGED).is_file():
        return [source / MERGED]
    raise UserError(
        f"{source}: no checkpoint there; expected a folder with dict.txt and fairseq's\n"
        f"model-model_part-0.pt, model-model_part-1.pt, …, or {MERGED} if merged."
    )
