"""Reads a model's weights from a folder, and checks whether they include the output head."""

from pathlib import Path
from typing import Any

import torch

from ptrun.backbone import files
from ptrun.backbone.family import Family
from ptrun.errors import UserError


def read(
    model_class: Any, config: Any, folder: Path, dtype: torch.dtype, device: str
) -> tuple[Any, set[str]]:
    """Return a model with its weights in `dtype`, and the names that the files lack.

    The weights are loaded onto `device` if `files.device_map` allows it.
    """
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, report = model_class.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        device_map=files.device_map(device),
        use_safetensors=True,
        output_loading_info=True,
    )
    return model, report["missing_keys"]


def has_head(name: str, missing: set[str], family: Family) -> bool:
    """Return whether the output head is complete, given the names that the files lack.

    Raises:
        UserError: the files lack other tensors.
    """
    starts = tuple(f"{head}." for head in (family.head, family.other_head) if head)
    if lost := sorted(tensor for tensor in missing if not tensor.startswith(starts)):
        raise UserError(
            f"backbone={name}: the weights lack {len(lost)} tensors, among them {lost[0]}."
        )
    return not missing
