"""Soft prompt: learned vectors at the input."""

import torch
from torch import Tensor, nn

from ptrun.errors import UserError


class SoftPrompt(nn.Module):
    """A table `[P, E]` of learned input vectors.

    Args:
        length: P, in vectors.
        width: E, the width of word embeddings.
        std: standard deviation of the normal start.

    Raises:
        UserError: `length` is below 1.
    """

    def __init__(self, length: int, width: int, std: float = 0.02):
        super().__init__()
        if length < 1:
            raise UserError(f"method.length is {length}; a soft prompt has 1 vector or more.")
        self.table = nn.Parameter(torch.empty(length, width).normal_(std=std))

    def forward(self, rows: int) -> Tensor:
        """Return the prompt once a row, `[rows, P, E]`."""
        return self.table.expand(rows, -1, -1)
