"""The file from which an interrupted adaptation goes on: tensors, and the rest in its header."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ptrun.errors import UserError


def write(
    file: Path, plan: Mapping[str, Any], tensors: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Replace the file in one step; `plan` is what the state belongs to."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(kept, draft, {"plan": json.dumps(plan), "state": json.dumps(plain)})
    draft.replace(file)


def read(file: Path, plan: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and plain data, or None if nothing was saved.

    Raises:
        UserError: the file is damaged, or belongs to another plan.
    """
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            header: dict[str, str] = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: damaged ({error}); remove it to start again.") from error
    before: dict[str, Any] = json.loads(header["plan"])
    if changed := [key for key in plan if before.get(key) != plan[key]]:
        told = ", ".join(f"{key} was {before.get(key)}, is {plan[key]}" for key in changed)
        raise UserError(
            f"{file}: begun with other settings ({told}).\nType those to go on, another out=DIR, "
            "or remove the file to start again."
        )
    return tensors, json.loads(header["state"])
