"""The files of a checkpoint as fairseq's model-parallel training saves it.

    FOLDER/model-model_part-0.pt … model-model_part-7.pt, or FOLDER/model.pt once merged

Each holds `{args: argparse.Namespace, model: tensors}`.
"""

import re
from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.errors import UserError
from ptrun.importing.opening import is_mapped, open_file
from ptrun.importing.rank_files import in_order

MERGED = "model.pt"
_FILE = re.compile(r"model-model_part-(\d+)\.pt")
_KEYS, _KIND = ("args", "model"), "a fairseq checkpoint, {args, model}"


class PartFiles:
    """Parts 0, 1, … of one checkpoint, or the one file they were merged into.

    Raises:
        UserError: no such files there, or a part is missing.
    """

    word = "part"

    def __init__(self, source: Path):
        self.files = _find(source)
        self.mapped = all(is_mapped(file) for file in self.files)
        self.args: list[dict[str, Any]] = []

    def open(self) -> list[dict[str, Tensor]]:
        """Return the tensors of each part; `args` are the settings they were saved with.

        Raises:
            UserError: a file cannot be opened, or parts are missing at the end.
        """
        held = [open_file(file, _KEYS, _KIND) for file in self.files]
        self.args = [_settings(one.get("args")) for one in held]
        self._check_count()
        return [one["model"] for one in held]

    def _check_count(self) -> None:
        saved, found = self.args[0].get("model_parallel_size"), len(self.files)
        if saved and saved != found and self.files[0].name != MERGED:
            raise UserError(
                f"{self.files[0].parent}: {found} parts, but they were saved as {saved}."
            )


def _settings(args: object) -> dict[str, Any]:
    """Return settings by name, of a Namespace or a plain dict; none where they are neither."""
    held = vars(args) if isinstance(args, Namespace) else args
    return dict(held) if isinstance(held, dict) else {}


def _find(source: Path) -> list[Path]:
    found = (_FILE.fullmatch(file.name) for file in source.glob("model-model_part-*"))
    parts = {int(match[1]): source / match[0] for match in found if match}
    if parts:
        return in_order(parts, source, "model-model_part-{}.pt")
    if (source / MERGED).is_file():
        return [source / MERGED]
    raise UserError(
        f"{source}: no checkpoint there; expected fairseq's model-model_part-0.pt, "
        f"model-model_part-1.pt, …\n(or {MERGED}, merged) and dict.txt in one folder."
    )
