"""Attention keeps no scores."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ptrun.backbone.base import Prefix
from ptrun.backbone.dropout import Keyed
from ptrun.backbone.kernel import Terms, attention
from tests.tiers import package

package("triton")


class Largest(TorchDispatchMode):
    """Notes the most numbers of a tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return made


def test_no_scores_are_in_memory_forward_or_backward():
    """On the meta device the same tensors are made: none has a number for each query and key."""
    rows, heads, tokens, length, width = 16, 16, 512, 100, 64
    with torch.device("meta"):
        sizes = (tokens, tokens, tokens, length, length)
        given = [torch.empty(rows, heads, n, width, dtype=torch.bfloat16) for n in sizes]
        keys = torch.empty(rows, dtype=torch.int64)
        mask = torch.empty(rows, 1, tokens, tokens, dtype=torch.bool)
    query, key, value, before, old = (tensor.requires_grad_() for tensor in given)
    with Largest() as largest:
        terms = Terms(0.1, mask, dropout=Keyed(keys, 1, 0.1))
        out = attention(query, key, value, Prefix(before, old), terms)
        torch.autograd.grad(out, given, torch.empty_like(out))
    assert largest.numbers == 2 * key.numel() < rows * heads * tokens * tokens
