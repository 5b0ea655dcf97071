"""From a sharded checkpoint to logits: those of the unsplit model in plain torch, within 1e-5."""

import pytest
import torch

from ptrun.backbone.base import BackboneInput, DecoderInput
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.importing.glm import import_glm
from ptrun.importing.megatron import import_megatron
from tests.backbone import glm_reference, megatron_reference
from tests.backbone.inputs import every
from tests.importing import glm_shards, megatron_shards
from tests.importing.gpt2_files import tokens, write_dictionary, write_gpt2

CONTEXT, ANSWER, BLANK = 9, 4, 5


def loaded(folder):
    backbone = PretrainedBackbone(name=folder.name, path=str(folder), dtype="fp32")
    backbone.load()
    return backbone


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_glms_ranks_answer_as_the_unsplit_model(tmp_path, ranks):
    state = glm_shards.whole_state()
    source = glm_shards.write_ranks(state, tmp_path / "ranks", ranks)
    pairs = write_gpt2(tmp_path / "gpt2")
    import_glm(source, tmp_path / "glm", tokenizer=pairs)
    ids = torch.randint(5, 250, (1, CONTEXT + ANSWER), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, CONTEXT, dtype=torch.bool)
    written = torch.ones(1, ANSWER, dtype=torch.bool)
    found = loaded(tmp_path / "glm").forward(
        BackboneInput(
            mask=mask,
            ids=ids[:, :CONTEXT],
            types=(torch.arange(CONTEXT) == BLANK).long()[None],
            decoder=DecoderInput(mask=written, ids=ids[:, CONTEXT:]),
            logits_at=every(written),
        )
    )
    places = torch.cat([torch.arange(CONTEXT), torch.full((ANSWER,), BLANK)])
    inside = torch.cat([torch.zeros(CONTEXT, dtype=torch.long), torch.arange(1, ANSWER + 1)])
    wanted = glm_reference.logits(state, ids[0], places, inside, CONTEXT, heads=2)
    torch.testing.assert_close(found.logits, wanted[CONTEXT:], atol=1e-5, rtol=0)


@pytest.mark.parametrize("final_norm", [False, True])
@pytest.mark.parametrize("parts", [1, 8])
def test_megatrons_parts_answer_as_the_unsplit_model(tmp_path, parts, final_norm):
    state = megatron_shards.whole_state(final_norm=final_norm)
    source = megatron_shards.write_parts(state, tmp_path / "parts", parts)
    write_dictionary(source, range(len(tokens())))
    pairs = write_gpt2(tmp_path / "gpt2")
    import_megatron(source, tmp_path / "megatron", tokenizer=pairs)
    ids = torch.randint(5, 250, (1, CONTEXT), generator=torch.Generator().manual_seed(1))
    mask = torch.ones(1, CONTEXT, dtype=torch.bool)
    given = BackboneInput(mask=mask, ids=ids, logits_at=every(mask))
    found = loaded(tmp_path / "megatron").forward(given)
    wanted = megatron_reference.logits(state, ids[0], heads=2)
    torch.testing.assert_close(found.logits, wanted, atol=1e-5, rtol=0)
