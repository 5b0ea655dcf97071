"""Soft prompt: learned vectors at the input."""

from typing import Protocol

import torch
from torch import Tensor, nn

from ptrun.errors import UserError


class InputVectors(Protocol):
    """A prompt that is a table of input vectors, which can start from given ones."""

    table: nn.Parameter

    def begin(self, vectors: Tensor) -> None:
        """Start from these vectors, `[P, E]`."""


class SoftPrompt(nn.Module):
    """A table `[P, E]` of learned input vectors.

    Args:
        length: P, in vectors.
        width: E, the width of word embeddings.
        std: standard deviation of the vectors' normal start.
        rescale: the factor from the stored table to the vectors.

    Raises:
        UserError: `length` is below 1, or `rescale` is not above 0.
    """

    def __init__(self, length: int, width: int, std: float = 0.02, rescale: float = 1.0):
        super().__init__()
        if length < 1:
            raise UserError(f"method.length is {length}; use 1 or more.")
        if rescale <= 0:
            raise UserError(f"method.rescale is {rescale}; use more than 0.")
        self.rescale = rescale
        self.table = nn.Parameter(torch.empty(length, width).normal_(std=std / rescale))

    def forward(self, rows: int) -> Tensor:
        """Return the prompt for each row, `[rows, P, E]`."""
        return self.vectors().expand(rows, -1, -1)

    def vectors(self) -> Tensor:
        """Return the vectors, `[P, E]`."""
        return self.table * self.rescale

    def begin(self, vectors: Tensor) -> None:
        """Start from these vectors, `[P, E]`."""
        with torch.no_grad():
            self.table.copy_(vectors / self.rescale)
