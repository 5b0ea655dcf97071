"""What an import refuses: it says why, and leaves nothing behind."""

import argparse
import os
import pickle
import random
import shutil
from collections import namedtuple

import numpy
import pytest
import torch

from ptrun.importing.cpm2 import import_cpm2
from tests.importing.megatron import rank_file, rank_state, save_rank, untied_t5, write_shards
from tests.importing.refused import refused as refused_import

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def original():
    return untied_t5()


def refused(source, out, *words, **options):
    refused_import(import_cpm2, source, out, *words, **options)


def test_a_folder_without_shards_is_told_what_was_expected(tmp_path):
    refused(tmp_path, tmp_path / "hf", "latest_checkpointed_iteration.txt", "mp_rank_00")


@pytest.mark.parametrize(("rank", "words"), [(1, "mp_rank_01"), (3, "saved as 4")])
def test_a_missing_rank_is_named(original, tmp_path, rank, words):
    source = write_shards(original, tmp_path / "s", 4)
    rank_file(source, rank).unlink()
    refused(source, tmp_path / "hf", words)


def test_ranks_of_different_saves_do_not_go_together(original, tmp_path):
    source = write_shards(original, tmp_path / "s", 2)
    save_rank(source / "100", 1, rank_state(original, 1, 2), iteration=200)
    refused(source, tmp_path / "hf", "iteration", "[100, 200]")


def rename(state, old, new):
    state[new] = state.pop(old)


NORM = "decoder.blocks.1.ff.layer_norm.weight"
WO = "encoder.blocks.1.ff.dense_relu_dense.wo.weight"
SPOILT = {
    "norm": (lambda s: s[NORM].add_(1), (NORM, "[1]", "rank 0")),
    "prompt": (lambda s: s["encoder.prompt_embeds.weight"].add_(1), ("prompt_embeds", "[1]")),
    "alias": (
        lambda s: s.update({"decoder.word_embeds.weight": s["word_embeds.weight"] + 1}),
        ("decoder.word_embeds.weight", "rank 1"),
    ),
    "rows": (
        lambda s: s.update({"lm_head.weight": s["lm_head.weight"][:-1]}),
        ("lm_head.weight", "rank 1", "63"),
    ),
    "dtype": (lambda s: s.update({WO: s[WO].half()}), (WO, "float16")),
    "absent": (lambda s: s.pop(WO), (WO, "ranks 0 and 1")),
}


@pytest.mark.parametrize("case", SPOILT)
def test_ranks_that_disagree_are_named_with_the_tensor(original, tmp_path, case):
    spoil, words = SPOILT[case]

    def change(rank, state):
        state["encoder.prompt_embeds.weight"] = torch.ones(4, 64)
        if rank == 1:
            spoil(state)

    refused(write_shards(original, tmp_path / "s", 2, change), tmp_path / "hf", *words)


MISFITS = {
    "missing": (lambda s: s.pop(WO), ("1 missing", WO)),
    "unknown": (lambda s: s.update({"encoder.gate.weight": torch.ones(3)}), ("encoder.gate",)),
    "no bias": (
        lambda s: s.pop("encoder.blocks.0.self_attn.self_attn.relative_attention_bias.weight"),
        ("not CPM-2 shards", "relative_attention_bias"),
    ),
    "vocabulary": (
        lambda s: s.update({"lm_head.weight": s["lm_head.weight"][:-1]}),
        ("lm_head.weight", "126", "128"),
    ),
    "vector": (lambda s: s.update({WO: s[WO].flatten()}), (WO, "[64, 128]")),
    "integers": (lambda s: s.update({NORM: s[NORM].int()}), (NORM, "int32")),
}


@pytest.mark.parametrize("case", MISFITS)
def test_tensors_that_do_not_fit_a_t5_are_named(original, tmp_path, case):
    spoil, words = MISFITS[case]
    source = write_shards(original, tmp_path / "s", 2, lambda rank, state: spoil(state))
    refused(source, tmp_path / "hf", *words)


def test_an_output_folder_with_files_is_left_alone(original, tmp_path):
    out = tmp_path / "hf"
    out.mkdir()
    source = write_shards(original, tmp_path / "s", 1)
    import_cpm2(source, out)  # an empty folder will do
    refused(source, out, "not empty")


def test_a_full_disk_is_noticed_before_writing(original, tmp_path, monkeypatch):
    source = write_shards(original, tmp_path / "s", 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 1000))
    refused(source, tmp_path / "hf", "0.0 GB are free")


def test_cpm2_is_never_unscaled(tmp_path):
    model = untied_t5(vocab_size=26240, d_model=8, num_layers=1, num_decoder_layers=1)
    source = write_shards(model, tmp_path / "s", 1)
    refused(source, tmp_path / "hf", "--unscale", "26240", unscale=True)


def test_random_states_and_settings_are_read_past(original, tmp_path):
    extra = {
        "random_rng_state": random.getstate(),
        "np_rng_state": numpy.random.RandomState(1).get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "args": argparse.Namespace(lr=0.1, best=numpy.float64(3)),
        "csr_tensor_module_names": set(),
    }
    import_cpm2(write_shards(original, tmp_path / "s", 2, **extra), tmp_path / "hf")


class Harm:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_objects_that_may_run_code_are_refused_unopened(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = write_shards(original, tmp_path / "s", 1, lr_scheduler=Harm())
    refused(source, tmp_path / "hf", "mkdir", "may run code", "torch.save")
    assert not (tmp_path / "harmed").exists()


def test_files_from_before_torch_1_6_are_read(original, tmp_path):
    source = write_shards(original, tmp_path / "s", 2)
    for rank in range(2):
        file = rank_file(source, rank)
        held = torch.load(file, weights_only=True)
        torch.save(held, file, _use_new_zipfile_serialization=False)
    assert import_cpm2(source, tmp_path / "hf").sizes.vocab == 128


@pytest.mark.parametrize("kind", ["cut", "text", "list", "no module"])
def test_a_damaged_file_is_named(original, tmp_path, kind):
    source = write_shards(original, tmp_path / "s", 1)
    file = rank_file(source, 0)
    if kind == "cut":
        file.write_bytes(file.read_bytes()[:5000])
    if kind == "text":
        file.write_text("version https://example.org/pointer\n")
    if kind == "list":
        torch.save([1], file)
    if kind == "no module":
        torch.save({"model": {}}, file)
    refused(source, tmp_path / "hf", "mp_rank_00")


def test_no_pickle_is_written(original, tmp_path):
    folder = import_cpm2(write_shards(original, tmp_path / "s", 2), tmp_path / "hf").folder
    for file in folder.iterdir():
        with pytest.raises((pickle.UnpicklingError, ValueError, KeyError, EOFError, IndexError)):
            pickle.loads(file.read_bytes())
