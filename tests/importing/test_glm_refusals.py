"""What an import of GLM refuses."""

import errno
import pickle

import pytest
import torch

from ptrun.errors import UserError
from ptrun.importing.glm import import_glm
from tests.importing.glm_shards import rank_file, whole_state, write_hub, write_ranks
from tests.importing.gpt2_files import write_gpt2
from tests.importing.refused import refused

WORDS = "word_embeddings.weight"
NORM = "transformer.layers.1.input_layernorm.weight"
QKV = "transformer.layers.0.attention.query_key_value.weight"
OUT = "transformer.layers.1.attention.dense.bias"
TABLE = "transformer.block_position_embeddings.weight"


@pytest.fixture(scope="module")
def state():
    return whole_state()


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    return write_gpt2(tmp_path_factory.mktemp("gpt2"))


def test_a_folder_without_a_checkpoint_is_told_what_would_do(tmp_path):
    said = ("latest_checkpointed_iteration.txt", "mp_rank_00", "pytorch_model*.bin")
    refused(import_glm, tmp_path, tmp_path / "hf", *said)


@pytest.mark.parametrize(("rank", "said"), [(1, "mp_rank_01"), (3, "saved as 4")])
def test_a_missing_rank_is_named(state, tmp_path, rank, said):
    source = write_ranks(state, tmp_path / "s", 4)
    rank_file(source, rank).unlink()
    refused(import_glm, source, tmp_path / "hf", said)


NO_TENSORS = {
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    "page": (b"<html>404</html>", "not a file of tensors"),
    "junk": (b"junk", "not a file of tensors"),
    "empty": (b"", "damaged or cut short"),
    "cut zip": (b"PK\x03\x04" + b"\0" * 40, "damaged or cut short"),
    "cut pickle": (b"\x80\x02j\x00", "damaged or cut short"),
}


@pytest.mark.parametrize("case", NO_TENSORS)
def test_a_file_that_torch_did_not_write_is_told_without_a_fright(tmp_path, recwarn, case):
    content, said = NO_TENSORS[case]
    (tmp_path / "pytorch_model.bin").write_bytes(content)
    refused(import_glm, tmp_path, tmp_path / "hf", "pytorch_model.bin", said)
    assert not recwarn.list


def test_a_pickle_of_another_kind_is_refused_without_a_warning(tmp_path, recwarn):
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}, protocol=4))
    refused(import_glm, tmp_path, tmp_path / "hf", "pytorch_model.bin")
    assert not recwarn.list


SPOILT = {  # rank 1 alone
    "norm": (lambda s: s[NORM].add_(1), (NORM, "[1]")),
    "bias that all hold": (lambda s: s[OUT].add_(1), (OUT, "[1]")),
    "positions": (lambda s: s[TABLE][3].add_(1), (TABLE, "[1]")),
    "rows": (lambda s: s.update({WORDS: s[WORDS][:-1]}), (WORDS, "rank 1", "159")),
    "absent": (lambda s: s.pop(QKV), (QKV, "ranks 0 and 1")),
}


@pytest.mark.parametrize("case", SPOILT)
def test_ranks_that_disagree_are_named_with_the_tensor(state, words, tmp_path, case):
    spoil, said = SPOILT[case]
    source = write_ranks(state, tmp_path / "s", 2, lambda rank, s: spoil(s) if rank else None)
    refused(import_glm, source, tmp_path / "hf", *said, tokenizer=words)


def cut(name, rows):
    return lambda s: s.update({name: s[name][:rows]})


MISFITS = {
    "missing": (lambda s: s.pop(OUT), ("1 missing", OUT)),
    "unknown": (lambda s: s.update({"pool.weight": torch.ones(3)}), ("1 unknown", "pool.weight")),
    "no blocks": (lambda s: s.pop(TABLE), ("not a GLM checkpoint", TABLE)),
    "no words": (lambda s: s.pop(WORDS), ("not a GLM checkpoint", WORDS)),
    "few positions": (cut(TABLE, 513), (TABLE, "513 rows; expected 1025", "random values")),
    "few rows of a matrix": (cut(QKV, 186), (QKV, "[372, 128]", "[384, 128]")),
    "integers": (lambda s: s.update({NORM: s[NORM].int()}), (NORM, "int32")),
    "width": (lambda s: s.update({WORDS: s[WORDS][:, :100]}), ("100 columns", "64")),
}


@pytest.mark.parametrize("case", MISFITS)
def test_tensors_that_do_not_fit_are_named(state, words, tmp_path, case):
    spoil, said = MISFITS[case]
    source = write_ranks(state, tmp_path / "s", 2, lambda rank, s: spoil(s))
    refused(import_glm, source, tmp_path / "hf", *said, tokenizer=words)


def test_more_positions_are_refused_without_the_word_about_missing_ones(words, tmp_path):
    source = write_ranks(whole_state(1, 64, positions=2049), tmp_path / "s", 1)
    refused(import_glm, source, tmp_path / "hf", "2049 rows; expected 1025", tokenizer=words)


def test_a_value_beyond_fp16_is_refused_and_leaves_nothing(state, words, tmp_path):
    big = state | {NORM: state[NORM] * 1e6}
    source = write_ranks(big, tmp_path / "s", 2)
    said = ("transformer.h.1.ln_1.weight", "--dtype bf16")
    refused(import_glm, source, tmp_path / "hf", *said, tokenizer=words, dtype="fp16")


def test_an_output_folder_with_files_is_left_alone(state, words, tmp_path):
    source, out = write_ranks(state, tmp_path / "s", 1), tmp_path / "hf"
    out.mkdir()
    (out / "mine.txt").write_text("kept")
    refused(import_glm, source, out, "not empty", tokenizer=words)
    assert [file.name for file in out.iterdir()] == ["mine.txt"]


def test_other_vocabularies_are_refused(state, tmp_path):
    source = write_ranks(state, tmp_path / "s", 1)
    refused(import_glm, source, tmp_path / "hf", "320 rows", "50304", "--tokenizer")


def test_a_tokenizer_that_does_not_fit_is_refused(words, tmp_path):
    few = write_ranks(whole_state(1, 64, 270), tmp_path / "few", 1)
    refused(import_glm, few, tmp_path / "hf", "276 entries", "270 rows", tokenizer=words)
    full = write_ranks(whole_state(1, 64, 50304, torch.float16), tmp_path / "full", 1)
    refused(import_glm, full, tmp_path / "hf", "is 266 of", "50256", tokenizer=words)
    refused(import_glm, full, tmp_path / "hf", "vocab.json", tokenizer=tmp_path)


@pytest.mark.parametrize("kind", ["bin", "safetensors"])
def test_a_broken_snapshot_is_refused(state, words, tmp_path, kind):
    source = write_hub(state, tmp_path / "s", kind, 3)
    last = sorted(source.glob(f"*.{kind}"))[-1]
    whole = last.read_bytes()
    last.write_bytes(whole[: len(whole) // 2])
    refused(import_glm, source, tmp_path / "hf", last.name, "damaged", tokenizer=words)
    last.unlink()
    refused(import_glm, source, tmp_path / "hf", last.name, "index", tokenizer=words)


def test_a_tensor_in_two_files_is_refused(state, words, tmp_path):
    source = write_hub(state, tmp_path / "s", "bin", 2, index=False)
    torch.save({f"glm.{WORDS}": state[WORDS]}, source / "pytorch_model-more.bin")
    refused(import_glm, source, tmp_path / "hf", WORDS, "twice", tokenizer=words)


@pytest.mark.parametrize("held", [{"state_dict": {}}, [1]])
def test_a_file_of_something_else_is_refused(tmp_path, held):
    torch.save(held, tmp_path / "pytorch_model.bin")
    refused(import_glm, tmp_path, tmp_path / "hf", "no tensors at its top")


def test_a_folder_that_cannot_be_made_is_told(state, words, tmp_path):
    source = write_ranks(state, tmp_path / "s", 1)
    (tmp_path / "file").write_text("mine")
    out = tmp_path / "file" / "hf"
    with pytest.raises(UserError, match=r"file/hf: cannot be written \("):
        import_glm(source, out, tokenizer=words)


def test_a_disk_that_fills_up_meanwhile_leaves_nothing(state, words, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    source = write_ranks(state, tmp_path / "s", 1)
    monkeypatch.setattr("ptrun.hub.convert.write_model", full)
    refused(
        import_glm, source, tmp_path / "hf", "hf: cannot be written", "No space", tokenizer=words
    )
