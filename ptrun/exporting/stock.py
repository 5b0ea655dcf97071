"""Writes PEFT's files, and loads them as anybody would: with transformers and PEFT alone."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.exporting.form import Form

TENSORS = "adapter_model.safetensors"
_MODE = 0o644


def write(folder: Path, form: Form, backbone: PretrainedBackbone, base: str) -> None:
    """Write `adapter_config.json` and `adapter_model.safetensors` of a form.

    `base` names the backbone: a hub id or a folder.
    """
    from safetensors.torch import save_file

    config = peft_config(form, backbone, base)
    config.save_pretrained(folder)
    tensors = {name: t.float().cpu().contiguous() for name, t in form.tensors.items()}
    save_file(tensors, folder / TENSORS, {"format": "pt"})
    (folder / TENSORS).chmod(_MODE)


def peft_config(form: Form, backbone: PretrainedBackbone, base: str) -> Any:
    """Return PEFT's configuration of a form, for inference."""
    from peft import PeftType
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    made = PEFT_TYPE_TO_CONFIG_MAPPING[PeftType(form.peft_type)]
    options = dict(form.options)
    if "save_projection" in made.__dataclass_fields__:
        options["save_projection"] = False  # drawn again from its seed
    with _quiet():
        return made(
            **options,
            task_type=form.reader.task_type,
            base_model_name_or_path=base,
            revision=(backbone.commit or backbone.revision) if base == backbone.hub else None,
            inference_mode=True,
            modules_to_save=list(form.reader.modules) or None,
        )


def load(folder: Path, form: Form, backbone: PretrainedBackbone, device: str) -> Any:
    """Return the stock model of an adapter folder, in fp32.

    Raises:
        UserError: PEFT's model does not hold exactly the tensors of the folder.
    """
    import transformers
    from peft import PeftModel, get_peft_model_state_dict

    labels = {"num_labels": len(form.reader.labels)} if form.reader.labels else {}
    stock = getattr(transformers, form.reader.auto).from_pretrained(
        backbone.folder, dtype=torch.float32, use_safetensors=True, **labels
    )
    with _quiet():
        model = PeftModel.from_pretrained(stock, folder).to(device).eval()
    held = get_peft_model_state_dict(model, save_embedding_layers=False)
    for name, tensor in form.tensors.items():
        if name not in held or not torch.equal(held[name].cpu(), tensor.float().cpu()):
            raise UserError(f"export: PEFT did not load {name}. Nothing was written.")
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide PEFT's warnings, about old names it reads and projections that are drawn again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
