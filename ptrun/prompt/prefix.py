"""Deep prefix: learned keys and values for chosen layers, as a table or through an MLP.

GLM's released code learns hidden states instead, and the layers' own maps turn them into keys and
values: half as many numbers, and not all keys and values are possible.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ptrun.errors import UserError
from ptrun.prompt.linear import drawn

Reparameterization = Literal["embedding", "mlp"]
PrefixKind = Literal["kv", "hidden"]
Project = Callable[[Tensor], Tensor]
"""From hidden states `[P, n, H]` to keys and values `[P, 2 n, heads, d]`."""
Stack = Literal["encoder", "decoder", "cross"]
"""A stack of attentions: the self-attention of an encoder-decoder's halves, or its cross-attention.

A model with one stack has `encoder` alone, also if it is left-to-right.
"""


def places(stacks: Mapping[Stack, int], layers: Sequence[int] | None) -> list[tuple[Stack, int]]:
    """Return (stack, layer from 0) of each attention with a prefix, in the order of its slices.

    `stacks` gives the number of layers of each. The interval `layers`, counted from 1, applies to
    each stack.

    Raises:
        UserError: a stack does not have the interval.
    """
    pairs: list[tuple[Stack, int]] = []
    for stack, count in stacks.items():
        interval = (1, count) if layers is None else layers
        if layers is not None and (len(layers) != 2 or not 1 <= layers[0] <= layers[1] <= count):
            whose = f", the layers of the {stack}" if len(stacks) > 1 else ""
            raise UserError(
                f"method.layers is {list(layers)}; give [first,last] with "
                f"1 <= first <= last <= {count}{whose}."
            )
        pairs += [(stack, layer) for layer in range(interval[0] - 1, interval[1])]
    return pairs


class DeepPrefix(nn.Module):
    """Learned keys and values `[P, 2 n, heads, d]` for n layers, keys at even slices.

    Args:
        length: P, in vectors; 0 gives an empty prefix.
        layers: n, the number of layers with a prefix.
        heads, head_size: of the backbone; H = heads x d.
        kind: `embedding` learns the values themselves; `mlp` learns a `[P, H]` table and
            Linear(H, m), tanh, Linear(m, 2nH), dropped after training.
        hidden: m.
        project: turns hidden states into keys and values. The hidden states are learned then, from
            N(0, 1), the scale of normed states. None learns keys and values.
        states: the hidden size of the backbone, for `project`.
    """

    def __init__(
        self,
        length: int,
        layers: int,
        heads: int,
        head_size: int,
        kind: Reparameterization = "embedding",
        hidden: int = 512,
        project: Project | None = None,
        states: int = 0,
    ):
        super().__init__()
        self.form = (length, 2 * layers, heads, head_size)
        self.project = project
        width = states if project else heads * head_size
        outputs = layers * width if project else 2 * layers * width
        rows = outputs if kind == "embedding" else width
        std = 1.0 if project and kind == "embedding" else 0.02
        self.table = nn.Parameter(torch.empty(length, rows).normal_(std=std))
        self.mlp: nn.Module | None = None
        if kind == "mlp":
            down, up = nn.Linear(width, hidden), nn.Linear(hidden, outputs)
            self.mlp = nn.Sequential(drawn(down), nn.Tanh(), drawn(up))
        self.folded: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the prefix `[P, 2 n, heads, d]`."""
        if self.folded is not None:
            return self.folded
        values = self.table if self.mlp is None else self.mlp(self.table)
        if self.project is not None:
            return self.project(values.unflatten(-1, (self.form[1] // 2, -1)))
        return values.view(self.form)

    def fold(self, values: Tensor) -> None:
        """Use finished values instead of the table and MLP."""
        self.folded = values.view(self.form)
