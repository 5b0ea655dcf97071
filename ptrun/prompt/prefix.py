"""Deep prefix: learned keys and values for chosen layers, as a table or through an MLP.

Or learned hidden states, of which the layers' own maps make keys and values (GLM's released code):
half as many numbers, and a part of what keys and values can be.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from ptrun.errors import UserError

Reparameterization = Literal["embedding", "mlp"]
PrefixKind = Literal["kv", "hidden"]
Project = Callable[[Tensor], Tensor]
"""From hidden states `[P, n, H]` to keys and values `[P, 2 n, heads, d]`."""
Stack = Literal["encoder", "decoder", "cross"]
"""A stack of attentions: the self-attention of an encoder-decoder's halves, or its cross-attention.

A model with one stack has `encoder` alone, whichever way it reads.
"""


def places(stacks: Mapping[Stack, int], layers: Sequence[int] | None) -> list[tuple[Stack, int]]:
    """Return (stack, layer from 0) of each attention with a prefix, in the order of its slices.

    `stacks` gives the layers each has; the interval `layers`, counted from 1, is of each stack.

    Raises:
        UserError: the interval is not one of a stack's.
    """
    found: list[tuple[Stack, int]] = []
    for stack, count in stacks.items():
        whose = f", the layers of the {stack}" if len(stacks) > 1 else ""
        found += [(stack, layer) for layer in _interval(layers, count, whose)]
    return found


def _interval(layers: Sequence[int] | None, count: int, whose: str) -> range:
    if layers is None:
        return range(count)
    if len(layers) != 2 or not 1 <= layers[0] <= layers[1] <= count:
        raise UserError(
            f"method.layers is {list(layers)}; give [first,last] with "
            f"1 <= first <= last <= {count}{whose}."
        )
    return range(layers[0] - 1, layers[1])


def prefix_parameters(
    length: int, layers: int, width: int, kind: Reparameterization, hidden: int = 512
) -> int:
    """Return how many parameters a prefix learns (P-tuning v2 §3; the MLP's are for training only).

    `embedding`: one key and one value a vector and layer. `mlp`: a table of the hidden width, then
    Linear, tanh, Linear, with biases.
    """
    outputs = 2 * layers * width
    if kind == "embedding":
        return length * outputs
    return length * width + (width * hidden + hidden) + (hidden * outputs + outputs)


class DeepPrefix(nn.Module):
    """Learned keys and values `[P, 2 n, heads, d]` for n layers, keys at even slices.

    Args:
        length: P, in vectors; 0 gives an empty prefix, which is no prefix.
        layers: n, how many layers have one.
        heads, head_size: of the backbone; H = heads x d.
        kind: `embedding` learns the values themselves; `mlp` learns a `[P, H]` table and
            Linear(H, m), tanh, Linear(m, 2nH), folded away after training.
        hidden: m.
        project: makes keys and values of hidden states, which are then what is learned; they begin
            at N(0, 1), as normed states are. None: keys and values are learned.
        states: of those, H, the backbone's hidden size.
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
            self.mlp = nn.Sequential(
                nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
            )
            self.mlp.apply(_small)
        self.folded: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the prefix `[P, 2 n, heads, d]`."""
        if self.folded is not None:
            return self.folded
        made = self.table if self.mlp is None else self.mlp(self.table)
        if self.project is not None:
            return self.project(made.unflatten(-1, (self.form[1] // 2, -1)))
        return made.view(self.form)

    def fold(self, values: Tensor) -> None:
        """Use finished values in place of the table and MLP that made them."""
        self.folded = values.view(self.form)


def _small(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
