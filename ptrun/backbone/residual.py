"""The scaling of T5's residual stream by which PPT kept it in the range of fp16.

The embeddings, the outputs of attention and those of the feed-forward are divided by 100, the
last in two halves of 10. The norms undo it, if their epsilon is divided by 100 squared: then it is
the same function. PPT left it as it was, so that its converted shards are T5 with an epsilon of
1e-2 instead of 1e-6; importing them undoes the division.
"""

import re
from typing import Any

import torch

UNIT = 100.0
"""What hidden states, embeddings and prompts are divided by."""
_FACTORS = {
    r"shared\.weight": UNIT,
    r".*\.(SelfAttention|EncDecAttention)\.o\.weight": UNIT,
    r".*\.DenseReluDense\.(wi_1|wo)\.weight": 10.0,
}


def factor(name: str) -> float:
    """Return what a tensor of a T5 v1.1, by its name in transformers, is divided by."""
    for pattern, value in _FACTORS.items():
        if re.fullmatch(pattern, name):
            return value
    return 1.0


def scale_down(backbone: Any) -> None:
    """Divide a loaded T5's residual stream, one tensor after another in place, if not yet done.

    Its output stays, and so do the units of what goes in and out: word embeddings and edited
    hidden states are as before.
    """
    if backbone.injection.unit == UNIT:
        return
    backbone.injection.unit = UNIT
    gated = backbone.model.config.is_gated_act
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():  # shared ones come once
            parameter /= factor(name) if gated else _ungated(name)
    for module in backbone.model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon /= UNIT**2


def _ungated(name: str) -> float:
    """Return the factor in a T5 v1.0, whose feed-forward has one map before `wo`."""
    return UNIT if name.endswith("DenseReluDense.wo.weight") else factor(name)
