"""One module for each call of ALBERT's shared layer."""

from copy import deepcopy
from typing import Any

from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer


class Call(GradientCheckpointingLayer):  # type: ignore[misc]
    """One call of ALBERT's layer: new modules that share their tensors with all other calls."""

    def __init__(self, group: Any):
        super().__init__()
        shared = {id(t): t for t in (*group.parameters(), *group.buffers())}
        self.albert_layers = deepcopy(group.albert_layers, shared)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor, **options: Any) -> Tensor:
        """Apply the layer to hidden states `[B, T, H]`."""
        hidden: Tensor = self.albert_layers[0](hidden_states, attention_mask, **options)
        return hidden
