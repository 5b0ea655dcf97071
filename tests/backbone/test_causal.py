"""Models shaped like Llama against the library, and its cache as the prefix; windows."""

from dataclasses import replace
from itertools import product

import pytest
import torch
import transformers
from transformers import DynamicCache

from ptrun.backbone.base import Prefix
from ptrun.backbone.packing import Reach
from ptrun.backbone.pretrained import PretrainedBackbone
from tests.backbone.inputs import LENGTHS, library, outputs_of, text
from tests.conftest import SIZES

LENGTH = 4


def pairs(shape):
    generator = torch.Generator().manual_seed(5)
    size = (2, shape.layers, len(LENGTHS), shape.heads, LENGTH, shape.head_size)
    return torch.randn(size, generator=generator).unbind()


@pytest.mark.parametrize("shift", [0, LENGTH])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_prefix_equals_the_library_cache(tiny, tiny_folder, kind, shift):
    backbone = tiny(kind)
    given = text(backbone)
    keys, values = pairs(backbone.shape)
    prefixes = tuple(map(Prefix, keys, values))
    moved = torch.full((len(LENGTHS),), shift)
    ours = backbone.forward(replace(given, prefixes=prefixes, shift=moved)).logits
    cache = DynamicCache()
    for layer, (key, value) in enumerate(zip(keys, values, strict=True)):
        cache.update(key.clone(), value.clone(), layer)
    seen = torch.ones(len(LENGTHS), LENGTH, dtype=torch.long)
    theirs = library(tiny_folder(kind), kind)(
        given.ids,
        attention_mask=torch.cat([seen, given.mask.long()], dim=1),
        position_ids=torch.arange(given.ids.shape[1])[None] + shift,
        past_key_values=cache,
    ).logits[given.mask]
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


WINDOW = {"sliding_window": 3, "use_sliding_window": True, "max_window_layers": 1}
SHAPED = [("qwen3", {"head_dim": 16}, True)]
SHAPED += [(kind, own, True) for kind in ("mistral", "qwen2") for own in ({"head_dim": 16}, WINDOW)]
SHAPED += [(kind, WINDOW, False) for kind in ("mistral", "qwen2")]


@pytest.mark.parametrize(("kind", "options", "packed"), SHAPED)
def test_models_shaped_like_llama_equal_the_library(tmp_path, kind, options, packed):
    """Their layers with a window too, in packed rows and in padded ones."""
    sizes = {**SIZES, "vocab_size": 60, "num_key_value_heads": 1, **options}
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    backbone = PretrainedBackbone(name=kind, path=str(tmp_path))
    backbone.load()
    if not packed:
        backbone.architecture = replace(backbone.architecture, packed=None)
    assert backbone.shape.positions == SIZES["max_position_embeddings"]
    given = text(backbone)
    expected, _ = outputs_of(model, given)
    torch.testing.assert_close(backbone.forward(given).logits, expected, atol=1e-5, rtol=0)


def test_a_window_counts_real_tokens_on_any_padding_side():
    mask = torch.tensor([[True, True, True, True, False], [False, True, True, True, True]])
    right, left = Reach(1, 0)(mask)[:, 0]
    torch.testing.assert_close(right[:4, :4], left[1:, 1:])
    assert right[:4, :4].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert Reach(1, 1)(mask)[0, 0, 1].tolist() == [True, True, True, False, False]


def test_the_last_tokens_alone_see_what_they_saw():
    whole = torch.ones(2, 6, dtype=torch.bool)
    padded = whole.clone()
    padded[0, :3] = False
    for reach, mask in product((Reach(after=0), Reach(2, 0), Reach(2, 2)), (whole, padded)):
        torch.testing.assert_close(reach(mask, 2), reach(mask)[:, :, -2:])
        seen, last = reach(mask, 1), reach(mask)[:, :, -1:]
        assert last.all() if seen is None else torch.equal(seen, last)
    assert Reach(after=0)(whole, 1) is None  # a step of generation needs no mask
