"""Adapters: small residual maps inside every layer, the backbone frozen.

Houlsby et al. 2019, §2: after attention and after the feed-forward; Pfeiffer et al. 2021: after the
feed-forward alone. With `maps=phm` they are Compacters (Mahabadi et al. 2021). As in IDPG's
comparison layer norms stay frozen, which both papers train, and each Compacter has an A of its own;
its Pfeiffer layout has one more frozen norm before the adapter, here there is none. Dropout after
the up-projection, and then the layer's own on all that goes to the residual sum.
"""

from dataclasses import replace
from typing import Literal, Unpack

from torch import Tensor, nn

from ptrun.backbone.base import BackboneInput, Edit, Site
from ptrun.backbone.dropout import drop
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.method.base import Method
from ptrun.prompt.bottleneck import dense, hypercomplex
from ptrun.prompt.phm import mixing
from ptrun.readout.base import Batch
from ptrun.readout.reading import Reading
from ptrun.task.base import Task

Layout = Literal["houlsby", "pfeiffer"]
Maps = Literal["dense", "phm"]
Half = Literal["encoder", "decoder"]
"""Of an encoder-decoder; the only stack of other models is `encoder`."""

_KINDS = {"houlsby": ("attention", "ffn"), "pfeiffer": ("ffn",)}
_SITE = 1_200_000  # dropout sites from here on, beyond any site of a backbone


class Adapter(Method):
    """An adapter at each chosen place of each layer, and a read-out.

    An encoder-decoder has them in each half that has a part in the answer, not after attention
    from one half to the other.

    Args:
        backbone: frozen.
        task: what is answered.
        layout: `houlsby`, two a layer, or `pfeiffer`, one.
        maps: `dense`, or `phm` of rank 1 (Compacter).
        hidden: m, units of an adapter.
        order: n of `phm`: a divisor of H and m.
        shared_mixing: `phm`: one A for all adapters (Mahabadi et al.), not one each.
        dropout: of what an adapter adds, in training.
        reading: as in `ptrun.readout.reading.Reading`.

    Raises:
        UserError: a value is out of range.
    """

    def __init__(
        self,
        backbone: PretrainedBackbone,
        task: Task,
        *,
        layout: Layout = "houlsby",
        maps: Maps = "dense",
        hidden: int = 16,
        order: int = 4,
        shared_mixing: bool = False,
        dropout: float = 0.1,
        **reading: Unpack[Reading],
    ):
        super().__init__(backbone, task, **reading)
        _check(hidden, dropout)
        self.dropout, width = dropout, backbone.shape.hidden_size
        shared = mixing(order) if shared_mixing and maps == "phm" else None
        self.sites = _sites(backbone, layout, decodes=self.readout.reads_decoder)
        self.adapters = nn.ModuleDict()
        for own in self.sites:
            made = dense(width, hidden)
            if maps == "phm":
                made = hypercomplex(width, hidden, order, shared)
            self.adapters[_name(own)] = made

    def inputs(self, batch: Batch) -> BackboneInput:
        """Return the text, with an edit of hidden states for each adapter."""
        given = super().inputs(batch)
        decoder = given.decoder
        if decoder is not None:
            decoder = replace(decoder, edits=self._edits("decoder", batch))
        return replace(given, edits=self._edits("encoder", batch), decoder=decoder)

    def _edits(self, half: Half, batch: Batch) -> dict[Site, Edit]:
        """Return what the adapters of one half do, by site."""
        numbered = enumerate(self.sites, start=_SITE)
        return {
            site: self._edit(self.adapters[_name((own, site))], number, batch)
            for number, (own, site) in numbered
            if own == half
        }

    def _edit(self, adapter: nn.Module, number: int, batch: Batch) -> Edit:
        """Return what an adapter does; `number` is that of its dropout."""

        def dropped(x: Tensor) -> Tensor:
            return drop(x, batch.keys, number, self.dropout)

        def edit(hidden: Tensor) -> Tensor:
            changed: Tensor = adapter(hidden, dropped)
            return changed

        return edit


def _sites(
    backbone: PretrainedBackbone, layout: Layout, *, decodes: bool
) -> list[tuple[Half, Site]]:
    """Return where adapters are; `decodes` says whether a decoder has a part in the answer."""
    shape = backbone.shape
    halves: list[tuple[Half, int]] = [("encoder", shape.layers)]
    if decodes:
        halves.append(("decoder", shape.decoder_layers))
    return [
        (half, (kind, layer))
        for half, layers in halves
        for layer in range(layers)
        for kind in _KINDS[layout]
    ]


def _name(own: tuple[Half, Site]) -> str:
    half, (kind, layer) = own
    return f"{half}_{kind}_{layer}"


def _check(hidden: int, dropout: float) -> None:
    if hidden < 1:
        raise UserError(f"method.hidden is {hidden}; use 1 or more.")
    if not 0 <= dropout < 1:
        raise UserError(f"method.dropout is {dropout}; use 0 or more, and less than 1.")
