"""CPM-2's tokenizer: its rules on a small vocabulary, the authors' ids on the real ones."""

# ruff: noqa: RUF001  full-width punctuation is what is tested

import json
import logging
import sys
import tempfile

import pytest

from ptrun.errors import UserError
from ptrun.papers import cpm2_text
from ptrun.papers.cpm2_text import SPECIAL, is_cpm2, read_vocabulary, write_tokenizer
from ptrun.papers.tokenizers import Cpm2Tokenizer

HEAD = ["<unk>", "<s>", "</s>", "▃", "<sep>", "<pad>", "<mask>", "<eod>", "▁", ",", "▂"]
CHINESE = ["小", "猫", "小猫", "喝", "水", "。", "，", "：", "A", "B", "AB", "ABC", "7", "<s_0>"]


IDS = {token: number for number, token in enumerate([*HEAD, *CHINESE])}


@pytest.fixture
def folder(tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("\n".join(IDS) + "\n", encoding="utf-8")
    write_tokenizer(file, tmp_path)
    return tmp_path


@pytest.fixture
def tokenizer(folder):
    return Cpm2Tokenizer.from_pretrained(folder, local_files_only=True)


WORDS = {"小猫": ["小猫"], "猫小猫": ["猫", "小猫"], "ABCAB": ["ABC", "AB"], "": []}
WORDS |= {"小狗猫": ["小", "<unk>", "猫"], "A" * 200: ["A"] * 200, "A" * 201: ["<unk>"]}


@pytest.mark.parametrize(("word", "tokens"), WORDS.items())
def test_the_longest_entry_of_a_word_comes_first(tokenizer, word, tokens):
    assert tokenizer.split_word(word) == tokens


@pytest.mark.slow
def test_spaces_and_newlines_are_tokens_and_nothing_is_added(tokenizer):
    text = "小猫 喝\n水。AB AB"
    ids = tokenizer(text)["input_ids"]
    tokens = ["小猫", "▂", "喝", "▃", "水", "。", "AB", "▂", "AB"]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenizer.decode(ids) == text
    assert tokenizer("")["input_ids"] == []


@pytest.mark.slow
def test_full_width_letters_become_half_width_unless_told_otherwise(folder):
    by_default = Cpm2Tokenizer(str(folder / "vocab.txt"))
    assert by_default.tokenize("ＡＢ，　７：，") == ["AB", "，", "▂", "7", "：", "，"]
    as_is = Cpm2Tokenizer(str(folder / "vocab.txt"), q2b=False)
    assert set(as_is.tokenize("ＡＢ　７")) == {"<unk>"}
    as_is.save_pretrained(folder / "again")
    again = Cpm2Tokenizer.from_pretrained(folder / "again", local_files_only=True)
    assert again.q2b is False and again.get_vocab() == by_default.get_vocab() == IDS
    assert is_cpm2(folder / "again")


def test_pairs_are_truncated_and_padded_as_elsewhere_in_transformers(tokenizer):
    given = tokenizer(["小猫喝水"], ["ABC"], truncation="only_first", max_length=3)
    assert tokenizer.convert_ids_to_tokens(given["input_ids"][0]) == ["小猫", "喝", "ABC"]
    padded = tokenizer(["小猫喝水。", "水"], padding=True)
    assert padded["input_ids"][1][1:] == [5] * (len(padded["input_ids"][0]) - 1)
    assert padded["attention_mask"][1] == [1] + [0] * (len(padded["input_ids"][0]) - 1)


def test_special_tokens_have_the_ids_of_their_lines(tokenizer):
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 7)
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id, tokenizer.sep_token_id) == (5, 6, 4)
    assert tokenizer.convert_tokens_to_ids(["<s_0>", "小猫", "nothing"]) == [24, 13, 0]
    assert len(tokenizer) == tokenizer.vocab_size == 25
    assert tokenizer("水<mask>")["input_ids"][-1] == 6
    assert 6 not in tokenizer("水<mask>", split_special_tokens=True)["input_ids"]
    assert tokenizer.decode([6, 15, 7], skip_special_tokens=True) == "水"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([*HEAD, "水", "水"], "1 of 13 lines are repeated"),
        ([token for token in HEAD if token not in ("<eod>", "▂")], "it has no <eod>, ▂"),
        ([*HEAD, "un", "##able"], "Chinese-English vocabulary"),
    ],
)
def test_a_vocabulary_that_is_not_cpm2s_is_refused(tmp_path, lines, words):
    (tmp_path / "vocab.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        read_vocabulary(tmp_path / "vocab.txt")


def test_a_missing_or_binary_vocabulary_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_vocabulary(tmp_path / "vocab.txt")
    (tmp_path / "spiece.model").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not text"):
        read_vocabulary(tmp_path / "spiece.model")


def test_a_folder_is_cpm2s_by_the_class_it_names(folder, tmp_path):
    assert is_cpm2(folder) and not is_cpm2(tmp_path / "nothing")
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer"}))
    assert not is_cpm2(folder)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(UserError, match="not JSON"):
        is_cpm2(folder)


@pytest.mark.slow
def test_jieba_says_nothing_and_leaves_no_file(tokenizer, tmp_path, monkeypatch, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    cpm2_text.jieba.cache_clear()
    assert tokenizer.tokenize("小猫喝水") == ["小猫", "喝", "水"]
    assert capsys.readouterr() == ("", "") and not list(empty.iterdir())
    assert logging.getLogger("jieba").level == logging.ERROR


def test_without_jieba_the_extra_to_install_is_named(tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    cpm2_text.jieba.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'ptrun\[zh\]'"):
        tokenizer.tokenize("水")


GOLDEN = {
    "问题：": [96, 17],
    "选项：": [6295, 17],
    "文章：": [1395, 17],
    "答案是：": [537, 402, 22, 17],
    "这很": [32, 52],
    "我喜欢这部电影，很好看！": [23, 141, 147, 2537, 368, 16, 52, 68, 55, 13],
    "Hello world 2021": [21992, 10, 12950, 10, 9656, 59],
    "今天 天气\n好": [739, 10, 3775, 3, 68],
    "Ａ，Ｂ。": [415, 16, 464, 12],
    "今天天气怎么样？": [739, 3775, 138, 265, 19],
}
SINGLE = {
    **{"矛盾": 2590, "中立": 13237, "相似": 2946, "错误": 2009, "正确": 1353, "差": 546},
    **{"不好": 522, "一般": 304, "好": 68, "赞": 2838, "一": 50, "二": 230, "三": 156},
    **{"四": 349, "五": 443, "六": 803, "七": 950, "八": 1030, "九": 1189, "十": 1320},
    **{"十一": 2907, "十二": 2117, "十三": 3881, "十四": 4489, "十五": 2881, "十六": 3871},
    **{"，": 16, "：": 17, "；": 18, "？": 19, "、": 20, "。": 12, "“": 39, "”": 41, "?": 27},
}


@pytest.fixture(scope="module")
def real(shared):
    folder = shared / "models" / "tokenizers" / "cpm2"
    if not (folder / "vocab.txt").is_file():
        pytest.skip("shared data: no vocabulary of CPM-2")
    return Cpm2Tokenizer(str(folder / "vocab.txt"), split_special_tokens=True)


@pytest.mark.shared
@pytest.mark.parametrize("text", GOLDEN)
def test_real_vocabulary_gives_the_authors_ids(real, text):
    ids = real(text)["input_ids"]
    assert ids == GOLDEN[text]
    assert real.decode(ids) == text.replace("Ａ", "A").replace("Ｂ", "B")


@pytest.mark.shared
def test_the_real_vocabulary_has_its_size_ids_and_label_words(real):
    assert {word: real(word)["input_ids"] for word in SINGLE} == {
        word: [number] for word, number in SINGLE.items()
    }
    assert len(real("答案")["input_ids"]) == 2 and len(real) == 26_240
    sentinels = real.convert_tokens_to_ids(["<s_0>", "<s_189>"])
    assert sentinels == [26_050, 26_239] and real.eos_token_id == 7
    assert set(SPECIAL.values()) <= set(real.ids) and real.get_vocab() == real.ids


@pytest.mark.shared
@pytest.mark.parametrize(
    "text", ["小猫喝水，\n小狗 也喝 水。", "I drink tea 我喝茶 and water", "2021 年"]
)
def test_text_comes_back_from_the_real_vocabulary(real, text):
    ids = real(text)["input_ids"]
    assert real.decode(ids) == text and real.unk_token_id not in ids
