"""Checks for fp16: the residual stream of T5 overflows in it, unless it is scaled down."""

from collections.abc import Sequence

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.residual import scale_down
from ptrun.errors import UserError
from ptrun.method.base import Method


def check_fp16(backbone: PretrainedBackbone, precision: str, *, scaled: bool) -> None:
    """Check that a T5 in fp16 is scaled unless it fits as it is, and that nothing else is.

    Raises:
        UserError: it is not.
    """
    if scaled and not backbone.architecture.overflows:
        raise UserError(
            f"hardware.fp16_scaling=true: it supports T5 models, but {backbone.name} is "
            f"{backbone.config['model_type']}; leave it out."
        )
    overflows = backbone.architecture.overflows and not backbone.fits_fp16
    if precision == "fp16" and overflows and not scaled:
        raise UserError(
            f"hardware.precision=fp16: {backbone.name} is a T5, whose hidden states overflow in "
            "fp16;\ntype hardware.precision=bf16 or fp32, or add hardware.fp16_scaling=true, which "
            "divides them by 100."
        )


def scale(backbone: PretrainedBackbone, methods: Sequence[Method]) -> None:
    """Scale a loaded T5 down.

    Raises:
        UserError: a method adds maps to the backbone's, whose units would be scaled.
    """
    for method in methods:
        if method.changes_maps:
            raise UserError(
                f"hardware.fp16_scaling=true: {type(method).__name__} adds to the backbone's maps, "
                "which would be scaled; leave it out and type hardware.precision=bf16 or fp32."
            )
    scale_down(backbone)
