"""Where fp16 is refused: T5's residual stream is beyond it, unless it is scaled down."""

from collections.abc import Sequence

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.residual import scale_down
from ptrun.errors import UserError
from ptrun.method.base import Method


def check_fp16(backbone: PretrainedBackbone, precision: str, *, scaled: bool) -> None:
    """Refuse a T5 in fp16 that is not scaled, and scaling where there is nothing to scale.

    Raises:
        UserError: names what to type.
    """
    if scaled and backbone.family != "seq2seq":
        raise UserError(
            f"hardware.fp16_scaling=true: it is for T5's family, and {backbone.name} is "
            f"{backbone.config['model_type']}; leave it out."
        )
    if precision == "fp16" and backbone.family == "seq2seq" and not scaled:
        raise UserError(
            f"hardware.precision=fp16: {backbone.name} is a T5, whose hidden states overflow in "
            "fp16;\ntype hardware.precision=bf16 or fp32, or add hardware.fp16_scaling=true, which "
            "divides them by 100."
        )


def scale_frozen(backbone: PretrainedBackbone, methods: Sequence[Method]) -> None:
    """Scale a loaded T5 down, for methods that leave it alone.

    Raises:
        UserError: one tunes or changes it, which it would do in scaled units.
    """
    for name in (type(method).__name__ for method in methods if method.alone):
        raise UserError(
            f"hardware.fp16_scaling=true: {name} tunes or changes the backbone; it is for frozen "
            "ones. Type hardware.precision=bf16 or fp32, without it."
        )
    scale_down(backbone)
