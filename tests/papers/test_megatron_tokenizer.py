"""Megatron's tokenizer has fairseq's ids, from GPT-2's files."""

import random

import pytest
from transformers import AutoTokenizer

from ptrun.errors import UserError
from ptrun.papers.megatron import import_megatron, read_tokenizer, write_tokenizer
from tests.papers import gpt2_files
from tests.papers.gpt2_files import (
    byte_pair_ids,
    fairseq_ids,
    tokens,
    write_dictionary,
    write_files,
    write_gpt2,
)
from tests.papers.megatron_shards import whole_state, write_parts

TEXTS = [" the good", "in the ##good naïve—", "a\nb  c", "<|endoftext|> he", "madeupword0001"]


def symbols(size=None, seed=3):
    """GPT-2's ids in another order, fillers after them."""
    numbers = [*range(len(tokens()) if size is None else size)]
    random.Random(seed).shuffle(numbers)
    return [*map(str, numbers), *(f"madeupword{i:04d}" for i in range(5))]


@pytest.fixture
def source(tmp_path):
    write_dictionary(tmp_path / "s", symbols())
    return tmp_path / "s"


def loaded(pairs, folder):
    folder.mkdir(exist_ok=True)
    write_tokenizer(pairs, folder)
    return AutoTokenizer.from_pretrained(folder)


def encode(text):
    return fairseq_ids(text, symbols(), byte_pair_ids({t: i for i, t in enumerate(tokens())}))


def test_ids_are_those_of_fairseq(source, tmp_path):
    given = write_gpt2(tmp_path / "t")
    made = loaded(read_tokenizer(given, source, 320), tmp_path / "made")
    for text in TEXTS:
        ids = made(text)["input_ids"]
        assert ids == encode(text) and made.decode(ids) == text
    assert len(made) == 4 + len(symbols())
    assert made.convert_ids_to_tokens(4 + len(symbols()) - 1) == "madeupword0004"
    special = (made.bos_token_id, made.pad_token_id, made.eos_token_id, made.unk_token_id)
    assert special == (0, 1, 2, 3) and made.mask_token is None
    assert made("a", "b")["input_ids"] == encode("a") + encode("b")


@pytest.mark.slow
def test_gpt2s_whole_vocabulary_goes_through(shared, tmp_path):
    gpt2 = shared / "models" / "tokenizers" / "gpt2"
    names = symbols(50257)
    write_dictionary(tmp_path, names)
    made = loaded(read_tokenizer(gpt2, tmp_path, 51200), tmp_path / "made")
    own = AutoTokenizer.from_pretrained(gpt2)
    text = " It isn't true that “naïve” models cost 1,000 — or 2."
    assert made(text)["input_ids"] == fairseq_ids(
        text, names, lambda t: own(t, add_special_tokens=False)["input_ids"]
    )


def test_an_import_writes_it(source, tmp_path):
    write_parts(whole_state(), source, 2)
    made = import_megatron(source, tmp_path / "hf", tokenizer=write_gpt2(tmp_path / "t"))
    held = AutoTokenizer.from_pretrained(made.folder)
    assert held(TEXTS[0])["input_ids"] == encode(TEXTS[0]) and "no tokenizer" not in made.line()


def refused(given, source, words, rows=320):
    with pytest.raises(UserError) as caught:
        read_tokenizer(given, source, rows)
    assert words in str(caught.value) and len(str(caught.value).splitlines()) <= 3


BAD = {
    "twice": (lambda names: [*names, "7"], "occurs twice"),
    "lacking": (lambda names: [n for n in names if n != "8"], "1 of GPT-2's tokens missing"),
    "word": (lambda names: ["the", *names], "line 1: 'the"),
    "beyond": (lambda names: [*names, "99999"], "99999"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_dictionary_of_another_kind_is_refused(tmp_path, case):
    change, words = BAD[case]
    write_dictionary(tmp_path / "s", change(symbols()))
    refused(write_gpt2(tmp_path / "t"), tmp_path / "s", words)


def test_gpt2s_files_need_the_dictionary(tmp_path):
    refused(write_gpt2(tmp_path / "t"), tmp_path, "dict.txt")


def test_more_ids_than_rows_are_refused(source, tmp_path):
    refused(write_gpt2(tmp_path / "t"), source, "the model has 200 rows", rows=200)


def test_other_vocabularies_are_refused(source, tmp_path):
    names = {token: i for i, token in enumerate(reversed(tokens()))}
    refused(write_files(tmp_path / "t", names), source, "not GPT-2's")
    refused(write_files(tmp_path / "u", {"a": 0}), source, "256 bytes")
    refused(tmp_path / "absent", source, "tokenizer.json")
    (tmp_path / "t" / "tokenizer.json").write_text("{}")
    refused(tmp_path / "t", source, "do not hold a BPE")


def test_the_small_files_are_ordered_as_gpt2s(shared):
    import json

    real = json.loads((shared / "models" / "tokenizers" / "gpt2" / "vocab.json").read_text())
    assert [real[character] for character in gpt2_files.characters()] == [*range(256)]
