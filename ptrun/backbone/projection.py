"""Projects prefix vectors to keys and values with a layer's own frozen maps.

GLM's prefixes (the prompt branch of its released code) are hidden states before the input of a
layer's attention, after its norm. They have no query, position or output, so each equals one key
and one value.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import Site
from ptrun.backbone.injection import Reader, link_of
from ptrun.backbone.pretrained import PretrainedBackbone

_HEADS = 1  # the axis of heads
_MAPS = (("key", "value"), ("k_proj", "v_proj"), ("k", "v"))


def keys_values(
    backbone: PretrainedBackbone, sites: Sequence[tuple[Reader, Site]], states: Tensor
) -> Tensor:
    """Return keys and values `[P, 2 n, heads, d]`, keys at even slices, from states `[P, n, H]`.

    `sites` are the n attentions. In a tensor-parallel group each rank gets all heads.
    """
    modules = [m for m in backbone.model.modules() if "ptrun_link" in vars(m)]
    attentions = {(link_of(m).reader, link_of(m).site): m for m in modules}
    dtype = backbone.model.get_input_embeddings().weight.dtype
    slices: list[Tensor] = []
    for site, vectors in zip(sites, states.to(dtype).unbind(dim=1), strict=True):
        for tensor in _projected(attentions[site], vectors, backbone.shape.head_size):
            whole = backbone.division.whole(tensor, _HEADS) if backbone.division else tensor
            slices.append(whole.to(states.dtype))
    return torch.stack(slices, dim=1)


def _projected(module: Any, states: Tensor, head_size: int) -> tuple[Tensor, Tensor]:
    """Return keys and values `[P, heads, d]` from states `[P, H]`, for the heads of this rank."""
    if hasattr(module, "in_proj") or hasattr(module, "query_proj"):
        from ptrun.backbone import deberta  # it imports transformers, which planning does not need

        _, key, value = deberta.projected(module, states[None])
        return key[0].transpose(0, 1), value[0].transpose(0, 1)
    if hasattr(module, "c_attn"):
        _, key, value = module.c_attn(states[None])[0].chunk(3, dim=-1)
    else:
        names = next(pair for pair in _MAPS if hasattr(module, pair[0]))
        key, value = (getattr(module, name)(states) for name in names)
    key, value = (tensor.unflatten(-1, (-1, head_size)) for tensor in (key, value))
    return module.k_norm(key) if hasattr(module, "k_norm") else key, value
