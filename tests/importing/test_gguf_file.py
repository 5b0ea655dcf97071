"""Import of GGUF files: equal logits and tokens, and refusals."""

import json
import random
from contextlib import suppress

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ptrun.backbone.files import locate
from ptrun.errors import UserError
from ptrun.importing.gguf import import_gguf
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


@pytest.mark.parametrize("kind", ["qwen2", "qwen3"])
@torch.no_grad()
def test_qwens_give_equal_logits(kind, tmp_path):
    own = model(kind)
    import_gguf(write(tmp_path / "m.gguf", own), tmp_path / "out")
    torch.testing.assert_close(logits(tmp_path / "out"), own(INPUT).logits, atol=1e-6, rtol=0)
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "float32"  # as saved


@torch.no_grad()
def test_8_bit_weights_are_close_to_them(held, tmp_path):
    file = write(tmp_path / "m.gguf", held, quantized=gguf.GGMLQuantizationType.Q8_0)
    import_gguf(file, tmp_path / "out")
    near, exact = logits(tmp_path / "out"), held(INPUT).logits
    assert 1e-6 < (near - exact).abs().max() < 0.05 * exact.std()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "adapter_config.json"])
def test_what_lies_beside_the_file_is_not_read(name, held, tmp_path):
    file = write(tmp_path / "m.gguf", held)
    (tmp_path / name).write_text('{"base_model_name_or_path": "a/b", "tokenizer_class": "Bert"')
    import_gguf(file, tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer(TEXTS[0]).input_ids == byte_pairs().encode(TEXTS[0]).ids


@pytest.mark.parametrize(
    ("rule", "pieces"), [("gpt-2", ["in", "Ġ2024"]), ("smollm", ["in", "Ġ", "2", "0", "2", "4"])]
)
def test_text_is_split_by_the_rule_of_the_file(rule, pieces, held, tmp_path):
    """llama.cpp's rule for SmolLM splits off each digit, then splits as GPT-2."""
    import_gguf(write(tmp_path / "m.gguf", held, split=rule), tmp_path / "out")
    splitter = AutoTokenizer.from_pretrained(tmp_path / "out").backend_tokenizer.pre_tokenizer
    assert [piece for piece, _ in splitter.pre_tokenize_str("in 2024")] == pieces


REFUSED = {
    "architecture is gpt2": {"arch": "gpt2"},
    "the field llama.attention.sliding_window": {"more": {"llama.attention.sliding_window": 8}},
    "the field llama.logit_scale": {"more": {"llama.logit_scale": 0.5}},
    "rotary positions are scaled, ": {"more": {"llama.rope.scale_linear": 2.0}},
    "rotary positions": {"extra": ("rope_factors_long.weight",)},
    "the tensor blk.0.attn_q.bias": {"extra": ("blk.0.attn_q.bias",)},
    "the tensor blk.2.attn_q.weight": {"extra": ("blk.2.attn_q.weight",)},
    "value_length is 32, and .* heads of 16": {"more": {"llama.attention.value_length": 32}},
    "tokenizer.ggml.pre is deepseek-llm": {"split": "deepseek-llm"},
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
    with pytest.raises(UserError, match="is a folder; name the GGUF file in it"):
        import_gguf(tmp_path, tmp_path / "out")


LAYERS, GATES = b"llama.block_count", b"llama.feed_forward_length"


@pytest.mark.parametrize(
    ("field", "number", "reason"),
    [
        (b"llama.attention.head_count", 0, "transformers cannot read it"),
        (b"llama.attention.head_count", 5, "transformers cannot read it|heads of 12"),
        (GATES, 80, "missing or have another size"),
        (LAYERS, 3, "tensors are missing: blk.2"),
        (LAYERS, 1, "the tensor blk.1"),
        (LAYERS, 0, "block_count is 0"),
        (LAYERS, 2**32 - 1, "block_count is 4294967295, and it has 20 tensors"),
    ],
)
def test_sizes_that_are_not_those_of_the_tensors_are_refused(field, number, reason, held, tmp_path):
    content = write(tmp_path / "m.gguf", held).read_bytes()
    at = content.index(len(field).to_bytes(8, "little") + field) + 8 + len(field) + 4
    file = tmp_path / "other.gguf"
    file.write_bytes(content[:at] + number.to_bytes(4, "little") + content[at + 4 :])
    with pytest.raises(UserError, match=reason):
        import_gguf(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_changed_header_is_read_or_refused(held, tmp_path):
    """A byte of the first 2,000 is another, at 100 random places."""
    content, draw = write(tmp_path / "m.gguf", held).read_bytes(), random.Random(5)
    for count in range(100):
        at, byte = draw.randrange(2000), draw.randrange(256)
        file = tmp_path / "other.gguf"
        file.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
        with suppress(UserError):
            import_gguf(file, tmp_path / f"out{count}")


def test_a_gguf_file_as_backbone_names_the_import(tmp_path):
    with pytest.raises(UserError, match=r"ptrun import gguf m\.gguf --out DIR"):
        locate(None, "m.gguf")


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_says_which_package_is_missing(tmp_path, monkeypatch, package):
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr("ptrun.importing.gguf.find_spec", lambda name: name != package or None)
    with pytest.raises(UserError, match=rf"need {package}; type pip install 'ptrun\[gguf\]'"):
        import_gguf(file, tmp_path / "out")
