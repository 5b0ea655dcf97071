"""Parametrized hypercomplex multiplication: a linear map of few parameters.

Zhang et al. 2021, Eq. 4: W = sum_i A_i ⊗ B_i for n matrices A_i `[n, n]` and B_i `[in/n, out/n]`,
n³ + in · out / n parameters instead of in · out. IDPG uses it for prompts, Compacter for adapters.
W is never built: with x as X `[n, in/n]`, x W is sum_i A_iᵀ X B_i.
"""

import torch
from torch import Tensor, nn

from ptrun.errors import UserError

_STD = 0.05  # the start of every tensor in IDPG's released code


def mixing(order: int) -> nn.Parameter:
    """Return matrices A `[n, n, n]`, which several maps may share."""
    return nn.Parameter(torch.empty(order, order, order).normal_(std=_STD))


class PHM(nn.Module):
    """The map x -> x sum_i A_i ⊗ B_i (+ b), `[..., in] -> [..., out]`.

    Args:
        inputs, outputs: in and out.
        order: n, a divisor of both; 1 is an ordinary linear map times a number.
        rank: of every B_i = s_i t_i, s `[n, in/n, r]`, t `[n, r, out/n]`; None is full.
        bias: whether b `[out]` is added.
        shared: A of another map, to learn one for both.

    Raises:
        UserError: `order` does not divide both sizes.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        order: int,
        *,
        rank: int | None = None,
        bias: bool = False,
        shared: nn.Parameter | None = None,
    ):
        super().__init__()
        _check(inputs, outputs, order)
        self.mixing = mixing(order) if shared is None else shared
        pair = (inputs // order, outputs // order)
        sizes = [pair] if rank is None else [(pair[0], rank), (rank, pair[1])]
        self.factors = nn.ParameterList(torch.empty(order, *s).normal_(std=_STD) for s in sizes)
        self.bias = nn.Parameter(torch.empty(outputs).normal_(std=_STD)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return `[..., out]`; the smaller side is mixed first, to keep intermediates small."""
        blocks, order = self.blocks(), len(self.mixing)
        cut = x.reshape(*x.shape[:-1], order, blocks.shape[1])
        if blocks.shape[1] < blocks.shape[2]:
            mixed = torch.einsum("ipr,...pq->...irq", self.mixing, cut)
            product = torch.einsum("...irq,iqs->...rs", mixed, blocks)
        else:
            mapped = torch.einsum("...pq,iqs->...ips", cut, blocks)
            product = torch.einsum("ipr,...ips->...rs", self.mixing, mapped)
        flat: Tensor = product.flatten(-2)
        return flat if self.bias is None else flat + self.bias

    def blocks(self) -> Tensor:
        """Return B, `[n, in/n, out/n]`."""
        blocks: Tensor = self.factors[0]
        return blocks @ self.factors[1] if len(self.factors) == 2 else blocks

    def weight(self) -> Tensor:
        """Return W `[in, out]`, for comparison."""
        pairs = zip(self.mixing, self.blocks(), strict=True)
        return torch.stack([torch.kron(a, b) for a, b in pairs]).sum(dim=0)


def _check(inputs: int, outputs: int, order: int) -> None:
    if order < 1 or inputs % order or outputs % order:
        fits = [n for n in range(1, 65) if inputs % n == 0 and outputs % n == 0]
        raise UserError(
            f"method.order is {order}, but a map from {inputs} to {outputs} needs a divisor of "
            f"both; use one of {', '.join(map(str, fits))}."
        )
