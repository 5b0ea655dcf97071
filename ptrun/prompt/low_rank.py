"""The low-rank update of a linear map (Hu et al. 2022, §4.1)."""

from torch import nn


class LowRank(nn.Module):
    """The maps `down [r, in]` and then `up [out, r]`, which starts at zero."""

    def __init__(self, rank: int, inputs: int, outputs: int):
        super().__init__()
        self.down = nn.Linear(inputs, rank, bias=False)
        self.up = nn.Linear(rank, outputs, bias=False)
        nn.init.kaiming_uniform_(self.down.weight, a=5**0.5)  # as in PEFT
        nn.init.zeros_(self.up.weight)
