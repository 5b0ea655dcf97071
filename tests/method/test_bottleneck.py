"""Adapters: by formula, near nothing at the start, and their size."""

import pytest
import torch
from torch.nn.functional import gelu

from ptrun.method.adapter import dense, hypercomplex
from ptrun.prompt import mixing


def size(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("made", "count"), [(dense, 33_808), (hypercomplex, 3_184)])
def test_size_at_roberta_large_is_the_papers(made, count):
    order = (4,) if made is hypercomplex else ()
    with torch.device("meta"):
        assert size(made(1024, 16, *order)) == count


def test_an_adapter_by_formula():
    torch.manual_seed(0)
    own = hypercomplex(8, 4, 2)
    x = torch.randn(2, 5, 8)
    made = gelu(x @ own.down.weight() + own.down.bias) @ own.up.weight() + own.up.bias
    torch.testing.assert_close(own(x, lambda y: 2 * y), x + 2 * made, atol=1e-6, rtol=1e-5)
    assert own.up.mixing is own.down.mixing


def test_a_dense_one_begins_as_nothing_and_keeps_the_precision():
    x = torch.randn(2, 5, 8)
    torch.testing.assert_close(dense(8, 4)(x, lambda y: y), x, atol=1e-9, rtol=1e-6)
    assert dense(8, 4)(x.bfloat16(), lambda y: y).dtype is torch.bfloat16


def test_adapters_may_share_one_mixing():
    shared = mixing(2)
    both = torch.nn.ModuleList([hypercomplex(8, 4, 2, shared) for _ in range(2)])
    assert size(both) == 2**3 + 2 * (3 * 8 + 3 * 4)
