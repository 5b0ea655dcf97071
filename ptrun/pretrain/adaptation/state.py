"""The saved state of an interrupted adaptation: tensors, and plain data in the file's header."""

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
    """Replace the file atomically; `plan` holds the settings of the adaptation."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(on_cpu, draft, {"plan": json.dumps(plan), "state": json.dumps(plain)})
    draft.replace(file)


def read(file: Path, plan: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Return tensors and plain data, or None if nothing was saved.

    Raises:
        UserError: the file is damaged, or was saved with another plan.
    """
    if not file.is_file():
        return None
    try:
        with safe_open(file, "pt") as opened:
            header: dict[str, str] = opened.metadata()
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file}: damaged ({error}); remove it to start over.") from error
    before: dict[str, Any] = json.loads(header["plan"])
    if changed := [key for key in plan if before.get(key) != plan[key]]:
        changes = ", ".join(f"{key} was {before.get(key)}, is {plan[key]}" for key in changed)
        raise UserError(
            f"{file}: saved with other settings ({changes}).\nUse those to resume, use another "
            "out=DIR, or remove the file to start over."
        )
    return tensors, json.loads(header["state"])
