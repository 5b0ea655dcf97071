"""GLM's special tokens on GPT-2's vocabulary: ids, frame, label words."""

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ptrun.errors import UserError
from ptrun.papers.tokenizers import (
    GLM_SPECIAL,
    MASK,
    ROLES,
    START_OF_PIECE,
    add_special,
    write,
)
from ptrun.pattern.spelling import Spelling, frame

ADDED = ("<|startofpiece|>", "<|endofpiece|>", "[CLS]", "[MASK]", "[SEP]", "[UNK]")
ADDED += ("[gMASK]", "[sMASK]", "[dBLOCK]")
IDS = {token: 50257 + place for place, token in enumerate(ADDED)}
"""Those of the pre-trained models."""
WORDS = {"Yes": 3363, "No": 1400, "Maybe": 6674, "true": 2081, "false": 3991, "neither": 6159}


@pytest.fixture(scope="module")
def glm(shared, tmp_path_factory):
    made = Tokenizer.from_file(str(shared / "models" / "tokenizers" / "gpt2" / "tokenizer.json"))
    add_special(made)
    folder = tmp_path_factory.mktemp("glm")
    write(made, folder)
    return AutoTokenizer.from_pretrained(folder)


def test_special_tokens_have_the_pre_trained_ids(glm):
    assert list(IDS) == list(GLM_SPECIAL) and len(glm) == 50266
    assert {token: glm.convert_tokens_to_ids(token) for token in IDS} == IDS
    assert {*glm.all_special_ids} == {50256, *IDS.values()}
    roles = (glm.pad_token_id, glm.eos_token_id, glm.cls_token_id, glm.sep_token_id)
    assert roles == (50256, 50256, 50259, 50261)
    assert (glm.mask_token_id, glm.unk_token_id) == (50260, 50262)


@pytest.mark.parametrize(("word", "token"), WORDS.items())
def test_label_words_are_one_token_after_a_space(glm, word, token):
    assert Spelling(glm).answer(word) == [token]
    assert token not in glm.all_special_ids


def test_texts_are_framed(glm):
    text, other = (glm.encode(t, add_special_tokens=False) for t in ("a film", "so good"))
    assert dict(glm("a film")) == {"input_ids": [50259, *text, 50256], "attention_mask": [1] * 4}
    assert glm("a film", "so good")["input_ids"] == [50259, *text, 50261, *other, 50256]
    around = frame(glm, 2)
    assert (around.ids, around.types) == ([[50259], [50261], [50256]], None)


def test_a_mask_takes_the_space_before_it(glm):
    alone = glm.encode("Answer:", add_special_tokens=False)
    dot = glm.encode(".", add_special_tokens=False)
    assert glm.encode(f"Answer: {MASK}.", add_special_tokens=False) == [*alone, 50260, *dot]
    assert glm.decode(alone + dot) == "Answer:."


def test_the_pieces_serve_any_byte_level_vocabulary():
    made = Tokenizer(models.BPE({"a": 0, "b": 1, "<|endoftext|>": 2}, []))
    add_special(made)
    small = PreTrainedTokenizerFast(tokenizer_object=made, **ROLES)
    assert small("ab")["input_ids"] == [5, 0, 1, 2] and len(small) == 3 + len(GLM_SPECIAL)
    assert small.convert_tokens_to_ids(START_OF_PIECE) == 3


def test_a_tokenizer_without_an_end_is_refused():
    with pytest.raises(UserError, match="endoftext"):
        add_special(Tokenizer(models.BPE({"a": 0}, [])))
