"""Import of GGUF files: equal logits and tokens, and refusals."""

import json

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ptrun.backbone.files import locate
from ptrun.errors import UserError
from ptrun.importing.gguf_file import import_gguf
from tests.importing.gguf_files import TEXTS, byte_pairs, model, write

INPUT = torch.tensor([[5, 80, 200, 17, 3, 42, 301, 9]])


@pytest.fixture(scope="module")
def held():
    return model()


def logits(folder):
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    return loaded(INPUT).logits


@torch.no_grad()
def test_float_weights_give_equal_logits_and_tokens(held, tmp_path):
    done = import_gguf(write(tmp_path / "m.gguf", held), tmp_path / "out", dtype="fp32")
    torch.testing.assert_close(logits(tmp_path / "out"), held(INPUT).logits, atol=1e-6, rtol=0)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in TEXTS[:2]:
        ids = tokenizer(text).input_ids
        assert ids == byte_pairs().encode(text).ids
        assert tokenizer.decode(ids) == text
    assert done.parameters == sum(tensor.numel() for tensor in held.parameters())
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert "quantization_config" not in config and config["dtype"] == "float32"
    assert (tmp_path / "out/model.safetensors").stat().st_mode & 0o777 == 0o644


@torch.no_grad()
def test_8_bit_weights_are_close_to_them(held, tmp_path):
    file = write(tmp_path / "m.gguf", held, quantized=gguf.GGMLQuantizationType.Q8_0)
    import_gguf(file, tmp_path / "out")
    near, exact = logits(tmp_path / "out"), held(INPUT).logits
    assert 1e-6 < (near - exact).abs().max() < 0.05 * exact.std()


REFUSED = {
    "architecture is gpt2": {"arch": "gpt2"},
    "one of several files": {"more": {"split.count": 2}},
    "a mixture of experts": {"more": {"llama.expert_count": 4}},
    "positions are scaled": {"more": {"llama.rope.scaling.factor": 2}},
    "has no tokenizer": {"without": ("tokenizer",)},
    "tensors are missing": {"without": ("blk.1.ffn_up.weight",)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_transformers_would_read_wrongly_is_refused(reason, held, tmp_path):
    file = write(tmp_path / "m.gguf", held, **REFUSED[reason])
    with pytest.raises(UserError, match=reason):
        import_gguf(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_files_are_refused(held, tmp_path):
    whole = write(tmp_path / "m.gguf", held).read_bytes()
    for content, reason in ((b"PK\3\4", "not a GGUF file"), (whole[:3000], "damaged or cut short")):
        file = tmp_path / "other.gguf"
        file.write_bytes(content)
        with pytest.raises(UserError, match=reason):
            import_gguf(file, tmp_path / "out")
    with pytest.raises(UserError, match="no such file"):
        import_gguf(tmp_path / "absent.gguf", tmp_path / "out")


def test_a_gguf_file_as_backbone_names_the_import(tmp_path):
    with pytest.raises(UserError, match=r"ptrun import gguf m\.gguf --out DIR"):
        locate(None, "m.gguf")
