"""Adapters: h + drop(up(gelu(down h))), with dense or hypercomplex maps."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from ptrun.prompt.linear import drawn
from ptrun.prompt.phm import PHM

_STD = 1e-6  # of dense maps: training starts from the bare backbone


class Bottleneck(nn.Module):
    """A residual map of each token through a small hidden layer.

    Args:
        down: `[..., H] -> [..., m]`; `up`: back.
    """

    def __init__(self, down: nn.Module, up: nn.Module):
        super().__init__()
        self.down, self.up = down, up

    def forward(self, hidden: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `[B, T, H]` in the input's precision; `drop` applies dropout to the added part."""
        added = self.up(functional.gelu(self.down(hidden.float())))
        return hidden + drop(added).to(hidden.dtype)


def dense(width: int, hidden: int) -> Bottleneck:
    """Return an adapter of 2 H m + m + H parameters (Houlsby et al. 2019, §2.1)."""
    down, up = nn.Linear(width, hidden), nn.Linear(hidden, width)
    return Bottleneck(drawn(down, _STD), drawn(up, _STD))


def hypercomplex(
    width: int, hidden: int, order: int, shared: nn.Parameter | None = None
) -> Bottleneck:
    """Return an adapter of n³ + 3 H + 3 m parameters (Mahabadi et al. 2021, §4).

    Each B_i has rank 1. Both maps have the same A: their own, or `shared` with other adapters.
    """
    down = PHM(width, hidden, order, rank=1, bias=True, shared=shared)
    up = PHM(hidden, width, order, rank=1, bias=True, shared=down.mixing)
    assert up.bias is not None
    nn.init.uniform_(up.bias, -0.5, 0.5)
    return Bottleneck(down, up)
