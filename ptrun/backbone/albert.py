"""ALBERT's shared layer as one module a call."""

from copy import deepcopy
from typing import Any

from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer


class Call(GradientCheckpointingLayer):  # type: ignore[misc]
    """One call of ALBERT's layer: modules of its own, parameters shared with all other calls."""

    def __init__(self, group: Any):
        super().__init__()
        shared = {id(p): p for p in group.parameters()}
        self.albert_layers = deepcopy(group.albert_layers, shared)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **options: Any) -> Tensor:
        """Return what the layer makes of hidden states `[B, T, H]`."""
        out: Tensor = self.albert_layers[0](hidden_states, attention_mask, **options)
        return out
