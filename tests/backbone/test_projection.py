"""Hidden states before a layer's attention are keys and values: what a text says of itself."""

from dataclasses import replace

import pytest
import torch

from ptrun.backbone.base import BackboneInput, Prefix
from ptrun.backbone.injection import link_of
from ptrun.method.ptuning_v2 import keys_values
from tests.backbone.inputs import every

ABSOLUTE = ("bert", "roberta", "electra", "albert", "gpt2", "megatron", "blocklm")
"""Kinds whose keys know no position, so that a token's state is all there is of it."""
FIRST, TOKENS = 3, 9


@pytest.mark.parametrize("kind", ABSOLUTE)
def test_the_states_of_first_tokens_stand_in_for_them(tiny, kind):
    """The rest of a text reads the same, its positions shifted, from a prefix of those states."""
    backbone = tiny(kind)
    layers = backbone.shape.layers
    ids = torch.randint(5, 60, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, TOKENS, dtype=torch.bool)
    whole = BackboneInput(mask=mask, ids=ids, hidden_at=every(mask))
    read, wanted = reads(backbone, whole)
    states = torch.stack([read[layer][0, :FIRST] for layer in range(layers)], dim=1)
    sites = [("text", ("attention", layer)) for layer in range(layers)]
    slices = keys_values(backbone, sites, states).permute(1, 2, 0, 3)[:, None]
    prefixes = tuple(Prefix(slices[2 * i], slices[2 * i + 1]) for i in range(layers))
    rest = {"mask": mask[:, FIRST:], "ids": ids[:, FIRST:], "hidden_at": every(mask[:, FIRST:])}
    rest = replace(whole, shift=torch.tensor([FIRST]), prefixes=prefixes, **rest)
    found = backbone.forward(rest).hidden
    torch.testing.assert_close(found, wanted[FIRST:], atol=1e-5, rtol=0)


def reads(backbone, given):
    """Return what each layer's attention reads `[B, T, H]`, and the last hidden states."""
    found, handles = {}, []
    for module in backbone.model.modules():
        if "ptrun_link" in vars(module):
            layer = link_of(module).site[1]
            handles.append(hooked(module, layer, found))
    hidden = backbone.forward(given).hidden
    for handle in handles:
        handle.remove()
    return found, hidden


def hooked(module, layer, found):
    def keep(_module, arguments, named):
        found[layer] = arguments[0] if arguments else named["hidden_states"]

    return module.register_forward_pre_hook(keep, with_kwargs=True)


MAPS = {"llama": ("k_proj", "v_proj"), "t5": ("k", "v"), "deberta-v2": ("key_proj", "value_proj")}


@pytest.mark.parametrize("kind", MAPS)
def test_keys_that_positions_turn_or_bias_are_made_by_the_layers_own_maps(tiny, kind):
    """What a layer's maps put out for a token is what they make of its state as a prefix."""
    backbone = tiny(kind)
    ids = torch.randint(5, 60, (1, TOKENS), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, TOKENS, dtype=torch.bool)
    seen = {}
    module = next(
        m for m in backbone.model.modules() if "ptrun_link" in vars(m) and link_of(m).site[1] == 1
    )

    def keep(name):
        def hook(_module, given, out):
            seen.setdefault(name, (given[0][0], out[0]))  # the first: then DeBERTa's positions

        return getattr(module, name).register_forward_hook(hook)

    handles = [keep(name) for name in MAPS[kind]]
    backbone.forward(BackboneInput(mask=mask, ids=ids, hidden_at=every(mask)))
    for handle in handles:
        handle.remove()
    site = [("text", ("attention", 1))]
    made = keys_values(backbone, site, seen[MAPS[kind][0]][0][:, None])
    for slice_, name in enumerate(MAPS[kind]):
        torch.testing.assert_close(made[:, slice_].flatten(1), seen[name][1], atol=1e-6, rtol=0)
