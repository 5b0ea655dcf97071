"""The files of a DeepSpeed checkpoint: one per rank, with the tensors under `module`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.backbone.files import LATEST
from ptrun.converting.pickled import open_file
from ptrun.errors import UserError

_SAME = ("iteration", "global_steps", "mp_world_size")


class RankFiles:
    """Ranks 0, 1, … of one checkpoint.

    Args:
        source: the folder with `latest_checkpointed_iteration.txt` or `latest`, or with the
            mp_rank files.
        otherwise: other accepted files, for the message that there is no checkpoint.

    Raises:
        UserError: the folder has no such files, or a rank is missing.
    """

    word = "rank"

    def __init__(self, source: Path, otherwise: str = ""):
        self.files = _find(source, otherwise)

    def open(self) -> list[dict[str, Tensor]]:
        """Return the tensors of each rank.

        Raises:
            UserError: a file cannot be opened, or the files come from different saves.
        """
        ranks = [open_file(file, ("module",), "a DeepSpeed model file") for file in self.files]
        self._check_same_save(ranks)
        return [rank["module"] for rank in ranks]

    def _check_same_save(self, ranks: Sequence[dict[str, Any]]) -> None:
        folder = self.files[0].parent
        for key in _SAME:
            values = [rank[key] for rank in ranks if key in rank]
            if any(value != values[0] for value in values):
                raise UserError(f"{folder}: {key} differs between ranks: {values}; copy one save.")
        saved = ranks[0].get("mp_world_size", len(ranks))
        if saved != len(ranks):
            raise UserError(f"{folder}: {len(ranks)} ranks, but saved as {saved}.")


def folder_of(source: Path) -> Path:
    """Return the folder of the latest checkpoint, or `source` without a file that names it."""
    for name in LATEST:
        if (source / name).is_file():
            return source / (source / name).read_text(encoding="utf-8").strip()
    return source


def _find(source: Path, otherwise: str) -> list[Path]:
    name = "mp_rank_{:02d}_model_states.pt"
    ranks = numbered(folder_of(source), r"mp_rank_(\d+)_model_states\.pt", name)
    if not ranks:
        raise UserError(
            f"{source}: no checkpoint there; expected {LATEST[0]} and\n"
            f"<iteration>/{name.format(0)}, or a folder of mp_rank files{otherwise}."
        )
    return ranks


def numbered(folder: Path, pattern: str, name: str) -> list[Path]:
    """Return the files whose names match a pattern, in the order of their numbers from 0.

    Raises:
        UserError: a number is missing; `name` is the format of the names.
    """
    matches = (re.fullmatch(pattern, file.name) for file in folder.glob("*"))
    files = {int(match[1]): folder / match[0] for match in matches if match}
    if absent := sorted(set(range(max(files, default=0))) - set(files)):
        names = ", ".join(name.format(number) for number in absent)
        raise UserError(f"{folder}: {names} missing; numbers there: {sorted(files)}.")
    return [files[number] for number in sorted(files)]
