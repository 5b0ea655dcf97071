"""Residual prompt tuning: a soft prompt plus what a small network makes of it.

Razdaibiedina et al. 2023, "Residual Prompt Tuning": P' = P + LN(W_up ReLU(W_down P)) for each
vector. Layers start as torch's, and prompt and network share a learning rate, as in the released
code, which starts P from random words: `start=vocabulary`. A finished run has P' alone.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ptrun.errors import UserError
from ptrun.method.prompt_tuning import PromptTuning


class ResidualPrompt(PromptTuning):
    """A soft prompt `[P, E]` with a residual network, and a read-out.

    Args:
        length: P, in vectors.
        hidden: width of the network's hidden layer.
        separate: a network for each vector.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=residual_prompt", "method.length=5")
    >>> sorted(method.exported())
    ['prompt.table', 'readout.linear.bias', 'readout.linear.weight']
    """

    may_differ = ("length", "hidden", "separate")

    def __init__(self, *run: Any, length: int, hidden: int = 800, separate: bool = False):
        super().__init__(*run, length=length)
        if hidden < 1:
            raise UserError(f"method.hidden is {hidden}; use 1 or more.")
        width = self.backbone.shape.embedding_size
        for _ in range(length if separate else 1):
            down, up = nn.Linear(width, hidden), nn.Linear(hidden, width)
            self.prompt.mlp.append(nn.Sequential(down, nn.ReLU(), up, nn.LayerNorm(width)))

    def exported(self) -> dict[str, Tensor]:
        """Return the finished vectors as `prompt.table`, and the head, without the networks."""
        return {n: t for n, t in super().exported().items() if not n.startswith("prompt.mlp.")}

    def load_exported(self, tensors: dict[str, Tensor]) -> None:
        """Load finished vectors and a head; drop the networks."""
        self.prompt.mlp = nn.ModuleList()
        super().load_exported(tensors)

    def unfolded(self, exported: Mapping[str, Tensor]) -> None:
        """Return None: the networks cannot be recovered."""
