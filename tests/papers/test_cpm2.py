"""Shards in, the same model out: bit for bit, and untied."""

import copy

import pytest
import torch
from safetensors.torch import load_file
from transformers import T5Config, T5ForConditionalGeneration

from ptrun.papers.cpm2 import CPM2Sizes, import_cpm2, model_config, special_ids, targets
from tests.papers.cpm2_shards import divided, untied_t5, write_shards

IDS = torch.tensor([[5, 17, 120, 3, 44, 0, 99], [1, 2, 90, 8, 8, 127, 64]])
DECODER = torch.tensor([[1, 33, 7], [1, 33, 101]])


@pytest.fixture(scope="module")
def original():
    return untied_t5()


def loaded(folder, dtype=torch.float32):
    model, report = T5ForConditionalGeneration.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, local_files_only=True
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


@torch.no_grad()
def run(model, **more):
    return model(input_ids=IDS, decoder_input_ids=DECODER, **more)


def whole(model):
    return {n: t for n, t in model.state_dict().items() if "embed_tokens" not in n}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_imported_model_gives_the_very_same_logits(original, tmp_path, ranks):
    source = write_shards(original, tmp_path / "shards", ranks)
    made = import_cpm2(source, tmp_path / "hf")
    model = loaded(made.folder)
    assert torch.equal(run(model).logits, run(original).logits)
    assert made.parameters == sum(tensor.numel() for tensor in whole(original).values())
    assert (made.sizes.heads, made.sizes.d_kv, made.sizes.decoder_layers) == (8, 8, 3)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", None])
def test_dtype_is_the_checkpoints_own_unless_asked(original, tmp_path, dtype):
    half = copy.deepcopy(original).half()
    folder = import_cpm2(write_shards(half, tmp_path / "s", 2), tmp_path / "hf", dtype=dtype).folder
    expected = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", None: "float16"}[dtype]
    model = loaded(folder, dtype="auto")
    assert model.dtype is getattr(torch, expected)
    for name, tensor in whole(half).items():
        assert torch.equal(model.state_dict()[name], tensor.to(model.dtype)), name


def test_a_trained_prompt_goes_to_a_file_of_its_own(original, tmp_path):
    prompt = torch.randn(10, 64)

    def add(rank, state):
        state["encoder.prompt_embeds.weight"] = prompt

    source = write_shards(original, tmp_path / "s", 2, add)
    assert import_cpm2(source, tmp_path / "hf").notes == ("a prompt",)
    assert torch.equal(load_file(tmp_path / "hf" / "prompt.safetensors")["prompt"], prompt)
    assert torch.equal(run(loaded(tmp_path / "hf")).logits, run(original).logits)
    import_cpm2(source, tmp_path / "t5", unscale=True)
    assert torch.equal(load_file(tmp_path / "t5" / "prompt.safetensors")["prompt"], prompt * 100)


def test_the_configuration_names_the_ids_of_the_vocabulary():
    ids = {rows: special_ids(rows, t5=False) for rows in (26240, 51968, 32128, 250112)}
    shown = {rows: tuple(special.values()) for rows, special in ids.items()}
    assert shown == {26240: (5, 7, 1), 51968: (5, 8, 1), 32128: (0, 1, 0), 250112: (0, 1, 0)}
    unscaled = special_ids(128, t5=True)
    assert tuple(unscaled.values()) == (0, 1, 0)


def test_undoing_the_scaling_gives_back_the_original(original, tmp_path):
    source = write_shards(divided(original), tmp_path / "s", 4)
    model = loaded(import_cpm2(source, tmp_path / "hf", unscale=True).folder)
    assert (model.config.pad_token_id, model.config.decoder_start_token_id) == (0, 0)
    for name, tensor in whole(original).items():  # a division and a product: two roundings
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=3e-7, atol=0)
    torch.testing.assert_close(run(model).logits, run(original).logits, rtol=1e-4, atol=1e-4)


SIZES_11B = {26240: 11_087_097_856, 51968: 11_297_861_632, 32128: 11_135_332_352}
SIZES_11B |= {250112: 12_921_057_280}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "parameters"), SIZES_11B.items())
def test_the_11b_models_have_their_published_size(rows, parameters):
    sizes = CPM2Sizes(rows, 4096, 4096, 10240, 64, 32, 24, 24)
    shapes = {target.name: target.shape for target in targets(sizes)}
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == parameters
    config = model_config(sizes, special_ids(rows, t5=False), "float16")
    with torch.device("meta"):
        model = T5ForConditionalGeneration(T5Config(**config))
    assert {name: tuple(tensor.shape) for name, tensor in whole(model).items()} == shapes
    assert len(model.state_dict()) == 560 and len({t.source for t in targets(sizes)}) + 2 == 440
    d, ff = 4096, 10240
    layers = 24 * (4 * d * d + 3 * d * ff + 2 * d) + 24 * (8 * d * d + 3 * d * ff + 3 * d)
    assert layers + 2 * rows * d + 2 * 32 * 64 + 2 * d == parameters
