"""A GLM checkpoint in, in ranks or from the hub, and the unsplit tensors out: bit for bit."""

import json

import pytest
import torch
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

from ptrun.papers.glm import GLMSizes, import_glm, model_config, targets
from tests.papers.glm_reference import original
from tests.papers.glm_shards import whole_state, write_hub, write_ranks
from tests.papers.gpt2_files import tokens, write_gpt2
from tests.papers.refused import assert_tensors, refused


@pytest.fixture(scope="module")
def state():
    return whole_state()


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


def assert_same(folder, state):
    assert_tensors(folder, state, original)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_make_the_unsplit_tensors(state, words, tmp_path, ranks):
    source = write_ranks(state, tmp_path / "s", ranks)
    made = import_glm(source, tmp_path / "hf", tokenizer=words)
    assert_same(made.folder, state)
    assert made.parameters == sum(tensor.numel() for tensor in state.values())


@pytest.mark.parametrize("latest", ["latest", "latest_checkpointed_iteration.txt", None])
def test_the_folder_of_rank_files_is_found(state, words, tmp_path, latest):
    source = write_ranks(state, tmp_path / "s", 2, latest=latest or "other.txt")
    source = source if latest else source / "9"
    assert_same(import_glm(source, tmp_path / "hf", tokenizer=words).folder, state)


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
@pytest.mark.parametrize(("files", "index"), [(1, False), (3, True), (2, False)])
@pytest.mark.parametrize("prefix", ["", "glm."])
def test_a_snapshot_of_the_hub_is_the_same_model(
    state, words, tmp_path, kind, files, index, prefix
):
    source = write_hub(state, tmp_path / "s", kind, files, prefix, index)
    assert_same(import_glm(source, tmp_path / "hf", tokenizer=words).folder, state)


def test_the_stray_classifier_is_left_out_and_named(state, words, tmp_path):
    stray = {"dense.weight": torch.ones(128, 128), "out_proj.bias": torch.ones(1)}
    source = write_hub(state | stray, tmp_path / "s")
    made = import_glm(source, tmp_path / "hf", tokenizer=words)
    assert_same(made.folder, state)
    assert "dense.weight, out_proj.bias (a classifier)" in made.line()


def test_the_configuration_is_that_of_a_gpt2_with_blocks(state, words, tmp_path):
    half = {name: tensor.half() for name, tensor in state.items()}
    made = import_glm(write_ranks(half, tmp_path / "s", 2), tmp_path / "hf", tokenizer=words)
    config = json.loads((made.folder / "config.json").read_text())
    assert (config["model_type"], config["dtype"]) == ("blocklm", "float16")
    assert (config["n_head"], config["n_positions"], config["vocab_size"]) == (2, 1025, 320)
    end = len(tokens()) - 1
    assert (config["pad_token_id"], config["decoder_start_token_id"]) == (end, end + 1)
    config["model_type"] = "gpt2"
    model = GPT2LMHeadModel(GPT2Config(**config))
    named = dict(model.named_parameters()) | {"transformer.wbe.weight": torch.ones(1)}
    assert original(named).keys() == state.keys()


@pytest.mark.parametrize(
    ("layers", "width", "parameters"), [(36, 2048, 1_920_122_880), (48, 4096, 9_880_682_496)]
)
def test_the_published_models_have_their_size(layers, width, parameters):
    sizes = GLMSizes(50304, width, layers)
    wanted = targets(sizes)
    assert sum(torch.Size(target.model_shape).numel() for target in wanted) == parameters
    config = model_config(sizes, "float16", 50256, 50257)
    assert (config["n_head"], config["decoder_start_token_id"]) == (width // 64, 50257)


def test_without_a_tokenizer_there_is_none_and_the_line_says_so(tmp_path):
    state = whole_state(1, 64, 50304, torch.float16)
    made = import_glm(write_ranks(state, tmp_path / "s", 1), tmp_path / "hf", dtype="bf16")
    assert not (made.folder / "tokenizer.json").exists() and "--tokenizer FOLDER" in made.line()
    config = json.loads((made.folder / "config.json").read_text())
    assert (config["dtype"], config["eos_token_id"]) == ("bfloat16", 50256)
    assert config["decoder_start_token_id"] == 50257


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False], ids=["tokenizer.json", "vocab.json"])
def test_the_tokenizer_is_gpt2s_with_glms_special_tokens(shared, tmp_path, whole):
    source, given = shared / "models" / "tokenizers" / "gpt2", tmp_path / "gpt2"
    given.mkdir()
    for name in ["tokenizer.json"] if whole else ["vocab.json", "merges.txt"]:
        (given / name).symlink_to(source / name)
    state = whole_state(1, 64, 50304, torch.float16)
    made = import_glm(write_ranks(state, tmp_path / "s", 1), tmp_path / "hf", tokenizer=given)
    glm, gpt2 = (AutoTokenizer.from_pretrained(folder) for folder in (made.folder, source))
    text = " true, naïve  — 12 ##"
    assert glm(text)["input_ids"] == [50259, *gpt2(text)["input_ids"], 50256]
    assert glm.convert_tokens_to_ids("<|startofpiece|>") == 50257
    assert "no tokenizer" not in made.line()


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_a_broken_snapshot_is_refused(state, words, tmp_path, kind):
    source = write_hub(state, tmp_path / "s", kind, 3)
    last = sorted(source.glob(f"*.{kind}"))[-1]
    content = last.read_bytes()
    last.write_bytes(content[: len(content) // 2])
    refused(import_glm, source, tmp_path / "hf", last.name, "damaged", tokenizer=words)
    last.unlink()
    refused(import_glm, source, tmp_path / "hf", last.name, "index", tokenizer=words)


def test_a_tensor_in_two_files_is_refused(state, words, tmp_path):
    source, name = write_hub(state, tmp_path / "s", "bin", 2, index=False), "word_embeddings.weight"
    torch.save({f"glm.{name}": state[name]}, source / "pytorch_model-more.bin")
    refused(import_glm, source, tmp_path / "hf", name, "twice", tokenizer=words)
