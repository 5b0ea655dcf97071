"""Adapters: small residual maps inside every layer, the backbone frozen.

Houlsby et al. 2019, §2: after attention and after the feed-forward block. Pfeiffer et al. 2021:
after the feed-forward block only. `maps=phm` gives Compacters (Mahabadi et al. 2021).

Layer norms stay frozen, as in IDPG's comparison; both papers train them. Each Compacter has its own
A by default. The Pfeiffer layout omits the frozen norm that Mahabadi et al. put before the adapter.
Dropout acts after the up-projection; the layer's own dropout then acts on the sum.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import BackboneInput, Edit, Site
from ptrun.backbone.dropout import drop
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt import PHM, drawn, mixing
from ptrun.readout.base import Batch
from ptrun.readout.head import check_dropout

Layout = Literal["houlsby", "pfeiffer"]
Maps = Literal["dense", "phm"]
Half = Literal["encoder", "decoder"]
"""Half of an encoder-decoder. Other models have an `encoder` only."""

_KINDS = {"houlsby": ("attention", "ffn"), "pfeiffer": ("ffn",)}
_SITE = 1_200_000  # first dropout site, above every site of a backbone


class Adapter(Method):
    """An adapter at each chosen place of each layer, and a read-out.

    In an encoder-decoder each half that the read-out uses has adapters. Cross-attention has none.

    Args:
        layout: `houlsby`, two adapters a layer, or `pfeiffer`, one.
        maps: `dense`, or `phm` of rank 1 (Compacter).
        hidden: m, units of an adapter.
        order: n of `phm`; it must divide H and m.
        shared_mixing: for `phm`, share one A between all adapters (Mahabadi et al.).
        dropout: of an adapter's output, in training.

    >>> from ptrun.testing import read
    >>> method, batch, output = read("method=adapter")
    >>> method.adapters["encoder_ffn_0"].down.weight.shape  # [m, H]
    torch.Size([16, 128])
    """

    static = True
    edited = frozenset({"ffn"})
    may_differ = ("dropout",)

    def __init__(
        self,
        *run: Any,
        layout: Layout = "houlsby",
        maps: Maps = "dense",
        hidden: int = 16,
        order: int = 4,
        shared_mixing: bool = False,
        dropout: float = 0.1,
    ):
        super().__init__(*run)
        if hidden < 1:
            raise UserError(f"method.hidden is {hidden}; use 1 or more.")
        check_dropout("method", dropout)
        if not self.backbone.architecture.edited.issuperset(_KINDS[layout]):
            raise UserError(
                f"method.layout={layout}: the layers of {self.backbone.name} do not have one "
                "attention each to put an adapter behind. Type method.layout=pfeiffer."
            )
        self.dropout, width = dropout, self.backbone.shape.hidden_size
        shared = mixing(order) if shared_mixing and maps == "phm" else None
        halves: dict[Half, int] = {"encoder": self.backbone.shape.layers}
        if self.readout.reads_decoder:
            halves["decoder"] = self.backbone.shape.decoder_layers
        self.sites: list[tuple[Half, Site]] = [
            (half, (kind, layer))
            for half, layers in halves.items()
            for layer in range(layers)
            for kind in _KINDS[layout]
        ]
        self.adapters = nn.ModuleDict()
        for half, site in self.sites:
            adapter = dense(width, hidden)  # draws random numbers for `phm` too: runs depend on it
            if maps == "phm":
                adapter = hypercomplex(width, hidden, order, shared)
            self.adapters[_name(half, site)] = adapter

    @classmethod
    def unused(cls, node: Mapping[str, Any]) -> set[str]:
        """Return the keys of `phm` with dense maps."""
        return set() if node.get("maps") == "phm" else {"order", "shared_mixing"}

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with an edit of hidden states for each adapter."""
        text = super().inputs(batch)
        decoder = text.decoder and replace(text.decoder, edits=self._edits("decoder", batch))
        return replace(text, edits=self._edits("encoder", batch), decoder=decoder)

    def _edits(self, half: Half, batch: Batch) -> dict[Site, Edit]:
        dropped = partial(drop, keys=batch.keys, p=self.dropout)
        return {
            site: partial(self.adapters[_name(half, site)], drop=partial(dropped, site=number))
            for number, (owner, site) in enumerate(self.sites, start=_SITE)
            if owner == half
        }


def _name(half: Half, site: Site) -> str:
    return f"{half}_{site[0]}_{site[1]}"


_STD = 1e-6  # of dense maps: training starts from the bare backbone


class _Bottleneck(nn.Module):
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


def dense(width: int, hidden: int) -> _Bottleneck:
    """Return an adapter of 2 H m + m + H parameters (Houlsby et al. 2019, §2.1)."""
    down, up = nn.Linear(width, hidden), nn.Linear(hidden, width)
    return _Bottleneck(drawn(down, _STD), drawn(up, _STD))


def hypercomplex(
    width: int, hidden: int, order: int, shared: nn.Parameter | None = None
) -> _Bottleneck:
    """Return an adapter of n³ + 3 H + 3 m parameters (Mahabadi et al. 2021, §4).

    Each B_i has rank 1. Both maps have the same A: their own, or `shared` with other adapters.
    """
    down = PHM(width, hidden, order, rank=1, bias=True, shared=shared)
    up = PHM(hidden, width, order, rank=1, bias=True, shared=down.mixing)
    assert up.bias is not None
    nn.init.uniform_(up.bias, -0.5, 0.5)
    return _Bottleneck(down, up)
