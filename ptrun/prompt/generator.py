"""Instance to prompt: G(z) = W2 drop(gelu(W1 z + b1)), and a bias for every site it is used at.

IDPG, Wu et al. 2022, §3. A site is a place where prompt vectors are added: the input, or after a
layer. What its sites share is the paper's S, M or L version.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.errors import UserError
from ptrun.prompt.phm import PHM

Kind = Literal["phm", "dense", "none"]
Sharing = Literal["S", "M", "L"]
"""All of it for all sites (S), a bias a site (M), or a whole generator a site (L)."""

Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Form:
    """What a generator is made of.

    Args:
        kind: `phm` or `dense` maps; `none` leaves the biases alone: prompts that are the same for
            all instances.
        hidden: m, the width between the maps; 0: one map, G(z) = W z.
        order: n of `phm`, a divisor of the widths it maps between.
        shared_mixing: whether both maps of `phm` have one A, as the paper's text has it and the
            count of S-IDPG-PHM; the released code has two.

    Raises:
        UserError: `hidden` is below 0.
    """

    kind: Kind = "phm"
    hidden: int = 16
    order: int = 16
    shared_mixing: bool = False

    def __post_init__(self) -> None:
        """Refuse a width that is none."""
        if self.hidden < 0:
            raise UserError(f"method.hidden is {self.hidden}; use 1 or more, or 0 for one map.")


class Generator(nn.Module):
    """An instance `[B, in]` becomes vectors `[B, t, width]`; the site's bias is not in it."""

    def __init__(self, inputs: int, length: int, width: int, form: Form):
        super().__init__()
        self.shape = (length, width)
        self.down: nn.Module | None = None
        self.up: nn.Module
        if form.kind == "phm":
            self.down = PHM(inputs, form.hidden, form.order, bias=True) if form.hidden else None
            both = self.down.mixing if self.down is not None and form.shared_mixing else None
            self.up = PHM(form.hidden or inputs, length * width, form.order, shared=both)
        else:
            self.down = _dense(nn.Linear(inputs, form.hidden)) if form.hidden else None
            self.up = _dense(nn.Linear(form.hidden or inputs, length * width, bias=False))

    def forward(self, instance: Tensor, drop: Drop) -> Tensor:
        """Return the vectors; `drop` is dropout of the hidden units."""
        if self.down is not None:
            instance = drop(functional.gelu(self.down(instance)))
        made: Tensor = self.up(instance)
        return made.view(-1, *self.shape)


class Generators(nn.Module):
    """The prompts of all sites: what each one's generator makes, plus its bias.

    Sites of different widths, where word embeddings are narrower than hidden states, share
    nothing.

    Args:
        widths: of each site's vectors.
        inputs: width of an instance.
        length: t, vectors a site.
        sharing: S, M or L.
        form: of every generator.
    """

    def __init__(
        self, widths: Sequence[int], inputs: int, length: int, sharing: Sharing, form: Form
    ):
        super().__init__()
        sites = list(range(len(widths)))
        by_width = [widths.index(width) for width in widths]  # the first site that is as wide
        makes = sites if sharing == "L" else by_width
        begins = by_width if sharing == "S" else sites
        self._makes, self._begins = [str(s) for s in makes], [str(s) for s in begins]
        own = dict.fromkeys(makes) if form.kind != "none" else ()
        self.generators = nn.ModuleDict(
            {str(s): Generator(inputs, length, widths[s], form) for s in own}
        )
        self.biases = nn.ParameterDict(
            {str(s): torch.empty(length, widths[s]).uniform_(-0.5, 0.5) for s in set(begins)}
        )

    @property
    def reads_instances(self) -> bool:
        """Whether prompts depend on the instance."""
        return bool(self.generators)

    def forward(self, site: int, instance: Tensor, drop: Drop) -> Tensor:
        """Return a site's prompt for instances `[B, in]`: `[B, t, width]`."""
        bias: Tensor = self.biases[self._begins[site]]
        if not self.reads_instances:
            return bias.expand(len(instance), -1, -1)
        made: Tensor = self.generators[self._makes[site]](instance, drop)
        return made + bias


def _dense(linear: nn.Linear) -> nn.Linear:
    nn.init.normal_(linear.weight, std=0.02)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
