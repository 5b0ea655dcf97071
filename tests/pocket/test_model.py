"""The shipped model loads as it is, is small, and has learned something."""

import json
import string
from itertools import islice
from pathlib import Path

import pytest
import torch

import ptrun.pocket
from ptrun.pocket.corpus import documents
from ptrun.pocket.tasks import VERSION, rows

FOLDER = Path(ptrun.pocket.__file__).parent / "models" / "pocket_bert"


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def model():
    from transformers import BertForMaskedLM

    found, report = BertForMaskedLM.from_pretrained(
        FOLDER, dtype=torch.float32, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    return found.eval()


def test_the_folder_is_small_and_belongs_to_this_world():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= 3_000_000
    result = json.loads((FOLDER / "result.json").read_text())
    assert result["world_version"] == VERSION
    assert result["parameters"] <= 1_400_000


def test_any_ascii_text_is_encoded_without_unknown_words(tokenizer):
    odd = string.printable + "x" * 300 + " http://example.org/a_b?c=1 McDonald's 12,000.5"
    assert tokenizer.unk_token_id not in tokenizer(odd)["input_ids"]


def test_case_is_kept_and_words_can_be_traced(tokenizer):
    row = rows("pocket_ner", "test")[0]
    encoded = tokenizer(row["tokens"], is_split_into_words=True)
    assert {w for w in encoded.word_ids() if w is not None} == set(range(len(row["tokens"])))
    assert tokenizer("Anna")["input_ids"] != tokenizer("anna")["input_ids"]


def test_most_corpus_words_are_one_token(tokenizer):
    text = " ".join(sentence for d in islice(documents("validation"), 200) for sentence in d)
    encoded = tokenizer(text, add_special_tokens=False)
    assert len(encoded["input_ids"]) <= 1.1 * len(set(encoded.word_ids()))


def hidden_word_accuracy(tokenizer, model, sentences: list[str], words: set[str]) -> float:
    """Return how often the model fills in a word of `words` where one was hidden."""
    wanted = set(tokenizer.convert_tokens_to_ids(sorted(words)))
    right = total = 0
    for sentence in sentences:
        ids = tokenizer(sentence, return_tensors="pt")["input_ids"]
        for place in [i for i, token in enumerate(ids[0].tolist()) if token in wanted]:
            shown = ids.clone()
            shown[0, place] = tokenizer.mask_token_id
            with torch.no_grad():
                guess = model(input_ids=shown).logits[0, place].argmax()
            right += int(guess == ids[0, place])
            total += 1
    return right / total


def test_hidden_grammar_words_are_filled_in(tokenizer, model):
    sentences = [sentence for d in islice(documents("validation"), 60) for sentence in d]
    function_words = {"of", "in", "by", "is", "was", "the", "for", "to", "at"}
    assert hidden_word_accuracy(tokenizer, model, sentences, function_words) >= 0.8
