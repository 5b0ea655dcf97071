"""The saved state of an interrupted adaptation: tensors, and plain data in the file's header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ptrun.errors import UserError
from ptrun.folder import tensors as files


def write(
    file: Path, plan: Mapping[str, Any], tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Replace the file atomically; `plan` holds the settings of the adaptation."""
    file.parent.mkdir(parents=True, exist_ok=True)
    files.draft(file, tensors, {"plan": json.dumps(plan), "state": json.dumps(plain)})()


def read(file: Path, plan: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and plain data, or None if nothing was saved.

    Drafts of processes that were killed while they saved are removed.

    Raises:
        UserError: the file is damaged, or was saved with another plan.
    """
    for draft in file.parent.glob(f".{file.name}.*"):
        draft.unlink(missing_ok=True)
    if not file.is_file():
        return None
    tensors, header = files.read(file, "Remove it to start over.")
    try:
        before, plain = dict(json.loads(header["plan"])), dict(json.loads(header["state"]))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: damaged (its header). Remove it to start over.") from error
    if changed := [key for key in plan if before.get(key) != plan[key]]:
        changes = ", ".join(f"{key} was {before.get(key)}, is {plan[key]}" for key in changed)
        raise UserError(
            f"{file}: saved with other settings ({changes}).\nUse those to resume, use another "
            "out=DIR, or remove the file to start over."
        )
    return tensors, plain
