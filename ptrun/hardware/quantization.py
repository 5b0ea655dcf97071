"""Checks for a quantized backbone: what its weights must not be."""

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.quantization.formats import Quantization, check_installed
from ptrun.errors import UserError


def check_quantization(backbone: PretrainedBackbone, kind: Quantization, *, scaled: bool) -> None:
    """Check that a backbone can be quantized, before it is loaded.

    Raises:
        UserError: a package is missing, or another option needs dense weights.
    """
    check_installed(kind)
    if backbone.tuned:
        raise UserError(
            f"hardware.quantization={kind}: start=run: gives this run a backbone that was tuned, "
            "whose weights stay dense; type hardware.quantization=none."
        )
    if scaled:
        raise UserError(
            f"hardware.quantization={kind}: hardware.fp16_scaling=true divides dense weights; "
            "leave one of the two out, or type hardware.precision=bf16."
        )


def check_frozen(kind: Quantization, *, tuned: bool) -> None:
    """Check that a run does not tune a backbone that is to be quantized.

    Raises:
        UserError: it does.
    """
    if tuned and kind != "none":
        raise UserError(
            f"hardware.quantization={kind}: this run tunes the backbone, which must be frozen; "
            "type hardware.quantization=none, or another method, such as method=lora."
        )
