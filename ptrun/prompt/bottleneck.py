"""Adapters: h + drop(up(gelu(down h))), of two dense maps or of two of few parameters."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from ptrun.prompt.phm import PHM

_STD = 1e-6  # of dense maps: training starts from the bare backbone


class Bottleneck(nn.Module):
    """A residual map through few units, of every token alone.

    Args:
        down: `[..., H] -> [..., m]`; `up`: back.
    """

    def __init__(self, down: nn.Module, up: nn.Module):
        super().__init__()
        self.down, self.up = down, up

    def forward(self, hidden: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """Return `[B, T, H]` in the precision it came in; `drop` is dropout of what is added."""
        made = self.up(functional.gelu(self.down(hidden.float())))
        return hidden + drop(made).to(hidden.dtype)


def dense(width: int, hidden: int) -> Bottleneck:
    """Return an adapter of 2 H m + m + H parameters (Houlsby et al. 2019, §2.1)."""
    made = Bottleneck(nn.Linear(width, hidden), nn.Linear(hidden, width))
    for linear in (made.down, made.up):
        assert isinstance(linear, nn.Linear)
        nn.init.normal_(linear.weight, std=_STD)
        nn.init.zeros_(linear.bias)
    return made


def hypercomplex(
    width: int, hidden: int, order: int, shared: nn.Parameter | None = None
) -> Bottleneck:
    """Return an adapter of n³ + 3 H + 3 m parameters (Mahabadi et al. 2021, §4).

    Each B_i is of rank 1, and both maps have one A: their own, or `shared` of other adapters.
    """
    down = PHM(width, hidden, order, rank=1, bias=True, shared=shared)
    up = PHM(hidden, width, order, rank=1, bias=True, shared=down.mixing)
    assert up.bias is not None
    nn.init.uniform_(up.bias, -0.5, 0.5)
    return Bottleneck(down, up)
