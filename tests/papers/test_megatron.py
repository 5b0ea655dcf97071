"""fairseq's parts in, the unsplit tensors out: bit for bit; settings and final norm as saved."""

import json

import pytest
import torch

from ptrun.papers.megatron import MegatronSizes, import_megatron, settings, targets
from tests.papers.megatron_reference import original
from tests.papers.megatron_shards import whole_state, write_parts
from tests.papers.refused import assert_tensors


@pytest.fixture(scope="module")
def state():
    return whole_state()


def assert_same(folder, state):
    assert_tensors(folder, state, original)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_parts_make_the_unsplit_tensors(state, tmp_path, parts):
    made = import_megatron(write_parts(state, tmp_path / "s", parts), tmp_path / "hf")
    assert_same(made.folder, state)
    assert made.parameters == sum(tensor.numel() for tensor in state.values())
    assert "2 layers, vocabulary 320" in made.line()


@pytest.mark.parametrize("final_norm", [False, True])
def test_the_file_decides_about_a_final_norm(tmp_path, final_norm):
    state = whole_state(final_norm=final_norm)
    made = import_megatron(write_parts(state, tmp_path / "s", 2), tmp_path / "hf")
    assert_same(made.folder, state)
    assert config_of(made.folder)["final_norm"] is final_norm
    said = "with a final norm" if final_norm else "no final norm in the file"
    assert said in made.line()


def test_a_tied_output_matrix_is_dropped(state, tmp_path):
    def change(part, held):
        held["decoder.output_projection.weight"] = held["decoder.embed_tokens.weight"].clone()

    source = write_parts(state, tmp_path / "s", 4, change)
    assert_same(import_megatron(source, tmp_path / "hf").folder, state)


def test_settings_are_taken_from_the_args(state, tmp_path):
    given = {"activation_fn": "relu", "no_scale_embedding": True, "dropout": 0.0}
    given |= {"relu_dropout": 0.3, "tokens_per_sample": 512, "decoder_attention_heads": 4}
    source = write_parts(state, tmp_path / "s", 2, **given)
    config = config_of(import_megatron(source, tmp_path / "hf").folder)
    expected = {"activation_function": "relu", "scale_embedding": False, "dropout": 0.0}
    expected |= {"attention_dropout": 0.2, "activation_dropout": 0.3, "attention_heads": 4}
    expected |= {"max_position_embeddings": 512, "d_model": 32, "ffn_dim": 192, "num_layers": 2}
    expected |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "model_type": "megatron"}
    assert config.items() >= expected.items()


def test_what_the_args_do_not_say_is_the_architectures(state, tmp_path):
    gone = ["dropout", "attention_dropout", "activation_fn", "tokens_per_sample", "arch"]
    source = write_parts(state, tmp_path / "s", 1, **dict.fromkeys(gone))
    config = config_of(import_megatron(source, tmp_path / "hf", dtype="bf16").folder)
    expected = {"dropout": 0.1, "attention_dropout": 0.1, "activation_dropout": 0.0}
    expected |= {"activation_function": "gelu", "max_position_embeddings": 1024}
    expected |= {"scale_embedding": True, "dtype": "bfloat16", "vocab_size": 320}
    assert config.items() >= expected.items()


def test_heads_are_known_for_the_published_width():
    assert settings({}, 3072)["attention_heads"] == 32


@pytest.mark.parametrize(("final_norm", "more"), [(False, 0), (True, 6144)])
def test_the_published_model_has_its_size(final_norm, more):
    wanted = targets(MegatronSizes(51200, 3072, 18432, 72, final_norm))
    counts = [torch.Size(target.model_shape).numel() for target in wanted]
    assert sum(counts) == 11_032_240_128 + more
    shares = [1 if target.axis is None else 8 for target in wanted]
    part = sum(count // share for count, share in zip(counts, shares, strict=True))
    assert part == 1_380_191_232 + more
