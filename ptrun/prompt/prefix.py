"""Deep prefix: learned keys and values for chosen layers, as a table or through an MLP."""

from typing import Literal

import torch
from torch import Tensor, nn

Reparameterization = Literal["embedding", "mlp"]


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
    """

    def __init__(
        self,
        length: int,
        layers: int,
        heads: int,
        head_size: int,
        kind: Reparameterization = "embedding",
        hidden: int = 512,
    ):
        super().__init__()
        self.form = (length, 2 * layers, heads, head_size)
        width, outputs = heads * head_size, 2 * layers * heads * head_size
        rows = outputs if kind == "embedding" else width
        self.table = nn.Parameter(torch.empty(length, rows).normal_(std=0.02))
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
        return made.view(self.form)

    def fold(self, values: Tensor) -> None:
        """Use finished values in place of the table and MLP that made them."""
        self.folded = values.view(self.form)


def _small(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
