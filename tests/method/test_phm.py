"""The map against Kronecker products, against a dense one, and its size."""

import pytest
import torch

from ptrun.errors import UserError
from ptrun.prompt import PHM


@pytest.mark.parametrize("order", [1, 2, 4, 8])
@pytest.mark.parametrize(("inputs", "outputs"), [(24, 8), (8, 40), (16, 16)])
@pytest.mark.parametrize("rank", [None, 1, 3])
def test_it_is_the_sum_of_kronecker_products(inputs, outputs, order, rank):
    torch.manual_seed(0)
    phm = PHM(inputs, outputs, order, rank=rank, bias=True)
    x = torch.randn(2, 5, inputs)
    torch.testing.assert_close(phm(x), x @ phm.weight() + phm.bias, atol=1e-6, rtol=1e-5)


def test_the_sum_is_written_out_once():
    """W[(p, q), (r, s)] = sum_i A_i[p, r] B_i[q, s], by hand at n = 2."""
    phm = PHM(4, 6, 2)
    a, b = phm.mixing, phm.blocks()
    for p, q, r, s in ((0, 1, 1, 2), (1, 0, 0, 1)):
        by_hand = sum(a[i, p, r] * b[i, q, s] for i in range(2))
        torch.testing.assert_close(phm.weight()[2 * p + q, 3 * r + s], by_hand)


@pytest.mark.parametrize("order", [0, 3, 16])
def test_an_order_that_divides_not_both_is_refused(order):
    with pytest.raises(UserError, match=f"method.order is {order}.* use one of 1, 2, 4, 8"):
        PHM(24, 16, order)
