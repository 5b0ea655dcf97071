"""Generates prompts from instances: G(z) = W2 drop(gelu(W1 z + b1)), plus a bias for each site.

IDPG, Wu et al. 2022, §3. A site is a place where prompt vectors are added: the input, or after a
layer. The paper's versions S, M and L differ in what sites share. In its appendix A.5 the prompt P
of the input also becomes LN(P), z + LN'(P), or both: LN(z + LN'(P)).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.errors import UserError
from ptrun.prompt.linear import drawn
from ptrun.prompt.phm import PHM

Kind = Literal["phm", "dense", "none"]
Sharing = Literal["S", "M", "L"]
"""Sites share everything (S), all but their biases (M), or nothing (L)."""

Drop = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Form:
    """The architecture of a generator.

    Args:
        kind: `phm` or `dense` maps; `none` has biases only, so that all instances have the same
            prompt.
        hidden: m, the width between the maps; 0 means one map, G(z) = W z.
        order: n of `phm`, a divisor of the widths of its maps.
        shared_mixing: whether both maps of `phm` share A, as in the paper's text and its count for
            S-IDPG-PHM; the released code has two.
        layer_norm: normalize the input's prompt vectors, by a norm that is learned.
        residual: add the instance to each of the input's prompt vectors, which a learned norm
            normalizes first. Instances are then as wide as these vectors.

    Raises:
        UserError: `hidden` is below 0, or `none` has a norm or residual.
    """

    kind: Kind = "phm"
    hidden: int = 16
    order: int = 16
    shared_mixing: bool = False
    layer_norm: bool = False
    residual: bool = False

    def __post_init__(self) -> None:
        if self.hidden < 0:
            raise UserError(f"method.hidden is {self.hidden}; use 1 or more, or 0 for one map.")
        if self.kind == "none" and (self.layer_norm or self.residual):
            key = "layer_norm" if self.layer_norm else "residual"
            raise UserError(
                f"method.{key}=true: method.generator=none generates no prompt; leave it out, or "
                "use method.generator=phm or dense."
            )


class Generator(nn.Module):
    """Maps instances `[B, in]` to vectors `[B, t, width]`, without the site's bias."""

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
            self.down = drawn(nn.Linear(inputs, form.hidden)) if form.hidden else None
            self.up = drawn(nn.Linear(form.hidden or inputs, length * width, bias=False))

    def forward(self, instance: Tensor, drop: Drop) -> Tensor:
        """Return the vectors; `drop` applies dropout to the hidden units."""
        if self.down is not None:
            instance = drop(functional.gelu(self.down(instance)))
        vectors: Tensor = self.up(instance)
        return vectors.view(-1, *self.shape)


class Generators(nn.Module):
    """The prompts of all sites: the output of each site's generator, plus its bias.

    Sites of different widths share nothing (word embeddings may be narrower than hidden states).

    Args:
        widths: of each site's vectors.
        inputs: width of an instance.
        length: t, in vectors, of each site.
        sharing: S, M or L.
        form: of every generator.

    Raises:
        UserError: there is a residual, and instances are not as wide as the input's vectors.
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
        first = dict.fromkeys(makes) if form.kind != "none" else ()
        self.generators = nn.ModuleDict(
            {str(s): Generator(inputs, length, widths[s], form) for s in first}
        )
        own = form.kind == "dense" and len(widths) == 1  # S-IDPG-DNN's is that of its last map: 0
        bound = 0.0 if own else 0.5
        self.biases = nn.ParameterDict(
            {str(s): torch.empty(length, widths[s]).uniform_(-bound, bound) for s in set(begins)}
        )
        if form.residual and inputs != widths[0]:
            raise UserError(
                f"method.residual=true adds an instance of {inputs} numbers to prompt vectors of "
                f"{widths[0]}; leave it out."
            )
        self.norm = nn.LayerNorm(widths[0]) if form.layer_norm else None
        self.added_norm = nn.LayerNorm(widths[0]) if form.residual else None

    @property
    def reads_instances(self) -> bool:
        """Whether prompts depend on the instance."""
        return bool(self.generators)

    def forward(self, site: int, instance: Tensor, drop: Drop) -> Tensor:
        """Return a site's prompts `[B, t, width]` for instances `[B, in]`."""
        bias: Tensor = self.biases[self._begins[site]]
        if not self.reads_instances:
            return bias.expand(len(instance), -1, -1)
        vectors: Tensor = self.generators[self._makes[site]](instance, drop)
        return vectors + bias if site else self._finished(vectors + bias, instance)

    def _finished(self, prompts: Tensor, instance: Tensor) -> Tensor:
        """Return the input's prompts `[B, t, width]` with residual and norm, as released."""
        if self.added_norm is not None:
            prompts = instance[:, None] + self.added_norm(prompts)
        return prompts if self.norm is None else self.norm(prompts)
