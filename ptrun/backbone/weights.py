"""Reads a model's weights from a folder, and tells whether its output head is among them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone import files
from ptrun.errors import UserError


def read(
    model_class: Any, config: Any, folder: Path, dtype: torch.dtype, device: str
) -> tuple[Any, set[str]]:
    """Return a model with its weights, one after another in their precision, and what is missing.

    `device` is where they go, where the library can bring them there.
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


def has_head(name: str, missing: set[str], heads: Sequence[str | None]) -> bool:
    """Return whether a model's output head is there, given what its files lack.

    Raises:
        UserError: they lack something else.
    """
    starts = tuple(f"{head}." for head in heads if head)
    lost = sorted(own for own in missing if not own.startswith(starts))
    if lost:
        raise UserError(
            f"backbone={name}: the weights lack {len(lost)} tensors, among them {lost[0]}."
        )
    return not missing
