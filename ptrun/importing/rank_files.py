"""The files of a checkpoint as DeepSpeed saves it: one a rank, tensors under `module`."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.backbone.files import LATEST
from ptrun.errors import UserError
from ptrun.importing.opening import is_mapped, open_file

_FILE = re.compile(r"mp_rank_(\d+)_model_states\.pt")
_SAME = ("iteration", "global_steps", "mp_world_size")


class RankFiles:
    """Ranks 0, 1, … of one checkpoint.

    Args:
        source: the folder with `latest_checkpointed_iteration.txt` or `latest`, or with the
            mp_rank files.
        otherwise: what else would do, for the message that nothing is there.

    Raises:
        UserError: no such files there, or a rank is missing.
    """

    word = "rank"

    def __init__(self, source: Path, otherwise: str = ""):
        self.files = _find(source, otherwise)
        self.mapped = all(is_mapped(file) for file in self.files)

    def open(self) -> list[dict[str, Tensor]]:
        """Return the tensors of each rank.

        Raises:
            UserError: a file cannot be opened, or they are of different saves.
        """
        held = [open_file(file, ("module",), "a DeepSpeed model file") for file in self.files]
        self._check_bookkeeping(held)
        return [one["module"] for one in held]

    def _check_bookkeeping(self, held: Sequence[dict[str, Any]]) -> None:
        for key in _SAME:
            values = [one[key] for one in held if key in one]
            if any(value != values[0] for value in values):
                raise UserError(
                    f"the ranks differ in {key}: {values}; they are of different saves."
                )
        expected = held[0].get("mp_world_size", len(held))
        if expected != len(held):
            raise UserError(
                f"{self.files[0].parent}: {len(held)} ranks, but they were saved as {expected}."
            )


def folder_of(source: Path) -> Path:
    """Return the folder of the latest checkpoint."""
    for name in LATEST:
        if (source / name).is_file():
            return source / (source / name).read_text(encoding="utf-8").strip()
    return source


def _find(source: Path, otherwise: str) -> list[Path]:
    folder = folder_of(source)
    found = (_FILE.fullmatch(file.name) for file in folder.glob("mp_rank_*"))
    ranks = {int(match[1]): folder / match[0] for match in found if match}
    name = "mp_rank_{:02d}_model_states.pt"
    if not ranks:
        raise UserError(
            f"{source}: no checkpoint there; expected {LATEST[0]} and\n"
            f"<iteration>/{name.format(0)}, or a folder of mp_rank files{otherwise}."
        )
    return in_order(ranks, folder, name)


def in_order(found: dict[int, Path], folder: Path, name: str) -> list[Path]:
    """Return files by their number, from 0.

    Raises:
        UserError: one is missing; `name` is what it would be called.
    """
    if absent := sorted(set(range(max(found) + 1)) - set(found)):
        names = ", ".join(name.format(number) for number in absent)
        raise UserError(f"{folder}: {names} missing; numbers there: {sorted(found)}.")
    return [found[number] for number in sorted(found)]
