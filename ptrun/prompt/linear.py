"""How linear maps of prompts and heads start."""

from torch import nn


def drawn(linear: nn.Linear, std: float = 0.02) -> nn.Linear:
    """Draw the weight of a linear map from N(0, std²), set its bias to 0, and return the map."""
    nn.init.normal_(linear.weight, std=std)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
