"""Reads a model's weights from a folder, and checks whether they include the output head."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone import files
from ptrun.backbone.family import Family
from ptrun.errors import UserError

_LOG = logging.getLogger(__name__)
_BUFFERS = ("position_ids", ".attn.bias", ".attn.masked_bias")  # of older versions of the library


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
    _tell_unread(folder, report["unexpected_keys"])
    return model, report["missing_keys"]


def _tell_unread(folder: Path, names: Collection[str]) -> None:
    """Log how many tensors of the files the model does not have: heads, or a wrong architecture."""
    rest = sorted(name for name in names if not name.endswith(_BUFFERS) and "pooler." not in name)
    if rest:
        shown = ", ".join(rest[:3])
        _LOG.info("%s: %d tensors of the files are not read, e.g. %s", folder, len(rest), shown)


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
