"""What an import of fairseq's Megatron refuses."""

import json
import os

import pytest
import torch

from ptrun.importing.megatron import import_megatron
from tests.importing.megatron_shards import whole_state, write_merged, write_parts
from tests.importing.refused import refused

WORDS = "decoder.embed_tokens.weight"
OUTPUT = "decoder.output_projection.weight"
BIAS = "decoder.layers.1.fc2.bias"
NORM = "decoder.layers.0.final_layer_norm.weight"
FC1 = "decoder.layers.1.fc1.weight"


@pytest.fixture(scope="module")
def state():
    return whole_state()


def test_a_folder_without_a_checkpoint_is_told_what_would_do(tmp_path):
    said = ("model-model_part-0.pt", "model.pt", "dict.txt")
    refused(import_megatron, tmp_path, tmp_path / "hf", *said)


@pytest.mark.parametrize(("part", "said"), [(1, "model-model_part-1.pt"), (3, "saved as 4")])
def test_a_missing_part_is_named(state, tmp_path, part, said):
    source = write_parts(state, tmp_path / "s", 4)
    (source / f"model-model_part-{part}.pt").unlink()
    refused(import_megatron, source, tmp_path / "hf", said)


SPOILT = {  # part 1 alone
    "bias that all hold": (lambda s: s[BIAS].add_(1), (BIAS, "parts [1]")),
    "norm": (lambda s: s[NORM].add_(1), (NORM, "parts [1]")),
    "rows": (lambda s: s.update({FC1: s[FC1][:-1]}), (FC1, "part 1", "95")),
    "absent": (lambda s: s.pop(FC1), (FC1, "parts 0 and 1")),
}


@pytest.mark.parametrize("case", SPOILT)
def test_parts_that_disagree_are_named_with_the_tensor(state, tmp_path, case):
    spoil, said = SPOILT[case]
    source = write_parts(state, tmp_path / "s", 2, lambda part, s: spoil(s) if part else None)
    refused(import_megatron, source, tmp_path / "hf", *said)


MISFITS = {
    "missing": (lambda s: s.pop(BIAS), ("1 missing", BIAS)),
    "unknown": (lambda s: s.update({"decoder.gate": torch.ones(3)}), ("1 unknown", "decoder.gate")),
    "half a norm": (
        lambda s: s.update({"decoder.layer_norm.weight": torch.ones(32)}),
        ("1 missing", "decoder.layer_norm.bias"),
    ),
    "rows": (lambda s: s.update({FC1: s[FC1][:-1]}), (FC1, "[190, 32]", "[192, 32]")),
    "encoder": (lambda s: s.pop(WORDS), ("not fairseq's Megatron", WORDS)),
    "untied": (lambda s: s.update({OUTPUT: s[WORDS] + 1}), (OUTPUT, "one tensor for both")),
}


@pytest.mark.parametrize("case", MISFITS)
def test_tensors_that_do_not_fit_are_named(state, tmp_path, case):
    spoil, said = MISFITS[case]
    source = write_parts(state, tmp_path / "s", 2, lambda part, s: spoil(s))
    refused(import_megatron, source, tmp_path / "hf", *said)


SETTINGS = {
    "decoder_normalize_before": False,
    "decoder_learned_pos": True,
    "no_token_positional_embeddings": True,
    "share_decoder_input_output_embed": False,
    "adaptive_input": True,
    "adaptive_softmax_cutoff": "10000,20000",
    "character_embeddings": True,
    "layernorm_embedding": True,
    "decoder_layerdrop": 0.2,
    "activation_fn": "swish",
    "decoder_attention_heads": 5,
    "dropout": "often",
    "decoder_layers": 3,
    "decoder_embed_dim": 64,
    "decoder_ffn_embed_dim": 64,
}


@pytest.mark.parametrize(("name", "value"), SETTINGS.items())
def test_settings_that_are_not_hosted_are_named(state, tmp_path, name, value):
    source = write_parts(state, tmp_path / "s", 1, **{name: value})
    refused(import_megatron, source, tmp_path / "hf", name, str(value))


@pytest.mark.parametrize("heads", [0, -2, "two", 2.0])
def test_heads_that_are_no_number_of_heads_are_refused(state, tmp_path, heads):
    source = write_parts(state, tmp_path / "s", 1, decoder_attention_heads=heads)
    refused(import_megatron, source, tmp_path / "hf", f"decoder_attention_heads: {heads}")


def test_settings_in_a_plain_dict_are_read_too(state, tmp_path):
    source = write_merged(state, tmp_path / "s")
    args = {"decoder_attention_heads": 2, "dropout": 0.0}
    torch.save({"args": args, "model": state}, source / "model.pt")
    import_megatron(source, tmp_path / "hf")
    made = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (made["attention_heads"], made["dropout"]) == (2, 0.0)


def test_heads_that_nobody_knows_are_asked_for(state, tmp_path):
    source = write_parts(state, tmp_path / "s", 1, decoder_attention_heads=None)
    refused(import_megatron, source, tmp_path / "hf", "decoder_attention_heads", "here: 32")


def test_parts_of_different_models_do_not_go_together(state, tmp_path):
    source = write_parts(state, tmp_path / "s", 2)
    file = source / "model-model_part-1.pt"
    held = torch.load(file, weights_only=False)
    held["args"].dropout = 0.5
    torch.save(held, file)
    refused(import_megatron, source, tmp_path / "hf", "different args")


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_objects_that_may_run_code_are_refused_unopened(state, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_parts(state, tmp_path / "s", 1, criterion=Harm())
    said = ("mkdir", "may run code", "torch.save({'args': state['args'], 'model': state['model']}")
    refused(import_megatron, source, tmp_path / "hf", *said)
    assert not (tmp_path / "harmed").exists()


def test_newer_files_without_args_need_heads(state, tmp_path):
    source = write_merged(state, tmp_path / "s")
    held = torch.load(source / "model.pt", weights_only=False)
    torch.save({"args": None, "model": held["model"]}, source / "model.pt")
    refused(import_megatron, source, tmp_path / "hf", "argparse.Namespace")


@pytest.mark.parametrize("held", [{"weights": {}}, [1]])
def test_a_file_of_something_else_is_refused(tmp_path, held):
    torch.save(held, tmp_path / "model.pt")
    refused(import_megatron, tmp_path, tmp_path / "hf", "no tensors under 'model'")


def test_a_value_beyond_fp16_is_refused_and_leaves_nothing(state, tmp_path):
    source = write_parts(state | {NORM: state[NORM] * 1e6}, tmp_path / "s", 2)
    said = ("model.layers.0.final_layer_norm.weight", "--dtype bf16")
    refused(import_megatron, source, tmp_path / "hf", *said, dtype="fp16")


def test_an_output_folder_with_files_is_left_alone(state, tmp_path):
    source, out = write_parts(state, tmp_path / "s", 1), tmp_path / "hf"
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    refused(import_megatron, source, out, "not empty")
