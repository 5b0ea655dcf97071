"""Scales T5's residual stream down into the range of fp16, as PPT does.

The embeddings and the outputs of attention and feed-forward are divided by 100, the last as 10
times 10. The norms undo this if their epsilon is divided by 100 squared; the function stays the
same. PPT kept the epsilon, so its converted shards are T5 with 1e-2 instead of 1e-6
(`backbone.layer_norm_eps=1e-2`). Importing them undoes the division.

A backbone that is tuned learns the divided tensors, as in PPT. So one AdamW step moves the
embeddings by 100 times the learning rate, in the unit of the checkpoint. Saved tensors have that
unit.
"""

import re
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.tuned import PREFIX

UNIT = 100.0
"""The divisor of hidden states, embeddings and prompts."""
_FACTORS = {
    r"shared\.weight": UNIT,
    r".*\.(SelfAttention|EncDecAttention)\.o\.weight": UNIT,
    r".*\.DenseReluDense\.(wi_1|wo)\.weight": 10.0,
}


def factor(name: str) -> float:
    """Return the divisor of a T5 v1.1 tensor, by its name in transformers."""
    return next((f for pattern, f in _FACTORS.items() if re.fullmatch(pattern, name)), 1.0)


def divided(backbone: Any, name: str, tensor: Tensor) -> Tensor:
    """Return a learned tensor of a method, by its name, in the unit in which it is trained."""
    divisor = _learned_divisor(backbone, name)
    return tensor if divisor == 1.0 else tensor / divisor


def whole(backbone: Any, name: str, tensor: Tensor) -> Tensor:
    """Return a learned tensor of a method, by its name, in the unit of the checkpoint."""
    divisor = _learned_divisor(backbone, name)
    return tensor if divisor == 1.0 else tensor * divisor


def _learned_divisor(backbone: Any, name: str) -> float:
    """Return the divisor of a learned tensor: 1 unless it is that of a scaled backbone."""
    own = name.removeprefix(PREFIX)
    scaled = own != name and backbone.injection.unit == UNIT
    return _divisor(backbone.model, own) if scaled else 1.0


def _divisor(model: Any, name: str) -> float:
    # T5 v1.0 has one map before `wo`, which takes 100
    ungated = not model.config.is_gated_act and name.endswith("DenseReluDense.wo.weight")
    return UNIT if ungated else factor(name)


def scale_down(backbone: Any) -> None:
    """Divide the residual stream of a loaded T5 in place, unless it is divided already.

    The output of the model stays the same, and so does the unit of the word embeddings and hidden
    states that callers see.
    """
    if backbone.injection.unit == UNIT:
        return
    backbone.injection.unit = UNIT
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():  # shared ones come once
            parameter /= _divisor(backbone.model, name)
    for module in backbone.model.modules():
        if hasattr(module, "variance_epsilon"):
            module.variance_epsilon /= UNIT**2
