"""Adds low-rank updates to the outputs of linear maps: to each row those of its own member.

The backbone's modules and weights stay as they are, so several members can share them.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from ptrun.backbone.base import Update, Updates
from ptrun.backbone.injection import Injection, dropped
from ptrun.backbone.packing.packed import Packing
from ptrun.backbone.pretrained import PretrainedBackbone


def wire_maps(backbone: PretrainedBackbone, paths: Iterable[str]) -> None:
    """Make linear maps of a loaded backbone, by their paths, add the updates of each pass."""
    for path in paths:
        module = backbone.model.get_submodule(path)
        if not hasattr(module, "ptrun_updated"):
            updated = _Updated(backbone.injection, path)
            object.__setattr__(module, "ptrun_updated", updated)  # no submodule
            module.register_forward_hook(updated)


class _Updated:
    """The forward hook of a linear map."""

    def __init__(self, injection: Injection, path: str):
        self.injection, self.path = injection, path

    def __call__(
        self, _module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
    ) -> Tensor | None:
        """Return the output with the updates of the current pass; None if it has none."""
        given = self.injection.given
        members = given.updates if given else ()
        own = [member.maps[self.path] for member in members if self.path in member.maps]
        if not own:
            return None
        assert len(own) == len(members), "members differ in the maps that they update"
        added = self._added(own, members, inputs[0])
        return (output + added).to(output.dtype)

    def _added(self, updates: Sequence[Update], given: Sequence[Updates], x: Tensor) -> Tensor:
        """Return what is added, for a batch `[B, T, in]` or packed tokens `[1, N, in]`."""
        keys, tokens = self.injection.keys, self.injection.tokens
        if len(updates) == 1:  # this also is where DeBERTa maps positions, which have no rows
            return _of_one(updates[0], x, keys, tokens)
        if tokens is not None:
            members = self.injection.members(given)
            own = zip(updates, members.split(x), members.tokens, strict=True)
            return members.joined([_of_one(u, part, keys, where) for u, part, where in own])
        rows = [own.rows for own in given]
        parts = torch.split(x, rows)
        each = torch.split(keys, rows) if keys is not None else [None] * len(parts)
        zipped = zip(updates, parts, each, strict=True)
        return torch.cat([_of_one(u, part, key, None) for u, part, key in zipped])


def _of_one(update: Update, x: Tensor, keys: Tensor | None, tokens: Packing | None) -> Tensor:
    """Return the update of one member's rows or tokens."""
    wide = dropped(x.to(update.down.dtype), keys, tokens, update.site, update.dropout)
    return functional.linear(functional.linear(wide, update.down), update.up) * update.scale
