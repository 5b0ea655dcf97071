"""The prompt encoder of P-tuning: pseudo tokens become input vectors, Ĥ = MLP(BiLSTM(Emb))."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, nn

Kind = Literal["lstm", "mlp", "plain"]
Width = Literal["half", "full"]


class PromptEncoder(nn.Module):
    """Learned vectors `[m, E]`, reparameterized by a small network that is dropped after training.

    Args:
        length: m, in vectors.
        width: E, the width of word embeddings.
        kind: `lstm` is Emb(m, E), a bidirectional LSTM of two layers, and Linear, ReLU, Linear to
            E; `mlp` omits the LSTM; `plain` is the table alone.
        hidden: of the LSTM, in each direction: `half` is E/2 (P-tuning on LAMA), `full` is E (its
            few-shot code).
    """

    def __init__(self, length: int, width: int, kind: Kind = "lstm", hidden: Width = "half"):
        super().__init__()
        self.table = nn.Parameter(torch.randn(length, width))  # as nn.Embedding starts
        size = width // 2 if hidden == "half" else width
        self.lstm: nn.LSTM | None = None
        self.mlp: nn.Module | None = None
        if kind == "lstm":
            self.lstm = nn.LSTM(width, size, num_layers=2, bidirectional=True, batch_first=True)
        if kind != "plain":
            inner = 2 * size if kind == "lstm" else width
            self.mlp = nn.Sequential(nn.Linear(inner, width), nn.ReLU(), nn.Linear(width, width))
        self.folded: Tensor | None = None

    def forward(self) -> Tensor:
        """Return the vectors `[m, E]`."""
        if self.folded is not None:
            return self.folded
        vectors: Tensor = self.table
        if self.lstm is not None:
            with _in_fixed_order(self.table):
                vectors = self.lstm(self.table[None])[0][0]
        return vectors if self.mlp is None else self.mlp(vectors)

    def begin(self, vectors: Tensor) -> None:
        """Start from these vectors `[m, E]`; allowed for `plain` alone."""
        assert self.mlp is None, "a reparameterized prompt cannot start from given vectors"
        with torch.no_grad():
            self.table.copy_(vectors)

    def fold(self, vectors: Tensor) -> None:
        """Use finished vectors instead of the network."""
        self.folded = vectors


def _in_fixed_order(like: Tensor) -> AbstractContextManager[None]:
    """Keep an LSTM out of cuDNN, whose sums have an open order and are in TF32 on recent GPUs."""
    return torch.backends.cudnn.flags(enabled=False) if like.is_cuda else nullcontext()
