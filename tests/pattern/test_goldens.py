"""Token ids of the papers, with the vocabularies of their backbones.

The ids are those that PPT's and CPM-2's official code (thu-coai/PPT dad6f2d and e5c2a44,
TsinghuaAI/CPM-2-Finetune bd0fc49) hold or give, the positions those of P-tuning's template.
"""

# ruff: noqa: RUF001  full-width punctuation is what is tested

import functools

import pytest

from ptrun.pattern.encoding import Encoder
from ptrun.pattern.pattern import parse, read_pvp
from ptrun.pattern.verbalizer import Verbalizer
from tests.pattern import tokenizers as make

pytestmark = pytest.mark.shared

LETTERS = [188, 279, 254, 308, 427, 371, 517, 566, 196, 683, 439, 434, 329, 567, 667, 345]
ENGLISH = {"terrible": 9412, "bad": 1282, "maybe": 2087, "good": 207, "great": 248}
ENGLISH |= {"yes": 4273, "no": 150, "culture": 1543, "science": 2056, "health": 533}
ENGLISH |= {"education": 1073, "computer": 1218, "sports": 2100, "business": 268}
ENGLISH |= {"entertainment": 4527, "family": 384, "politics": 6525}
CHINESE = {"矛盾": 2590, "中立": 13237, "相似": 2946, "错误": 2009, "正确": 1353, "差": 546}
CHINESE |= {"不好": 522, "一般": 304, "好": 68, "赞": 2838}
NUMERALS = [50, 230, 156, 349, 443, 803, 950, 1030, 1189, 1320, 2907, 2117, 3881, 4489, 2881, 3871]
CORRECT_ONE = [37, 2024, 80, 19]


@pytest.fixture(scope="module")
def real(shared):
    @functools.cache
    def load(name):
        if not (shared / "models" / "tokenizers" / name).is_dir():
            pytest.skip(f"shared data: no vocabulary {name}")
        return make.real(shared, name)

    return load


def encode(tokenizer, text, fields, words=(), **settings):
    return Encoder(tokenizer).encode(parse(text).render(fields, words), 512, **settings)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("{s} {mask}", [207, 1974, 32099]),
        ("{s} It was {mask}.", [207, 1974, 94, 47, 32099, 5]),
        ("{s} Just {mask}!", [207, 1974, 1142, 32099, 55]),
        (". {s} a {mask} .", [3, 5, 207, 1974, 3, 9, 32099, 3, 5]),
        (
            "{s}?{words|letters}? The correct one is {mask}",
            [207, 1974, 58, 188, 5, 1282, 5, 279, 5, 207, 5, 58, *CORRECT_ONE, 32099],
        ),
        ("{s}; {s}? {mask} . {s}", [207, 1974, 117, 207, 1974, 58, 32099, 3, 5, 207, 1974]),
    ],
)
def test_ppt_rows_have_the_ids_of_its_code(real, text, ids):
    encoded = encode(real("t5"), text, {"s": "good movie"}, ["bad", "good"])
    assert encoded.ids == ids and encoded.types is None
    assert encoded.masks == [ids.index(32099)]


def test_english_label_words_are_single_tokens(real):
    bound = Verbalizer({word: [word] for word in ENGLISH}).bind(real("t5"))
    assert {label: ids[0] for label, ids in zip(bound.labels, bound.ids, strict=True)} == {
        word: (number,) for word, number in ENGLISH.items()
    }


def test_option_letters_have_no_space_where_the_pattern_has_none(real):
    node = {"pattern": "{q}?{options|letters}? The correct one is {mask}"}
    pvp = read_pvp("race", node)
    verbalizer = pvp.verbalizer(options=16)
    assert [ids[0][0] for ids in verbalizer.bind(real("t5")).ids] == LETTERS
    pieces = pvp.render({"q": "why", "options": ["good"] * 4})
    encoded = Encoder(real("t5")).encode(pieces, 512)
    options = [number for letter in LETTERS[:4] for number in (letter, 5, 207, 5)]
    assert encoded.ids == [572, 58, *options, 58, *CORRECT_ONE, 32099]


def test_chinese_label_words_and_numerals_are_single_tokens(real):
    bound = Verbalizer({word: [word] for word in CHINESE}).bind(real("cpm2"))
    assert [ids[0][0] for ids in bound.ids] == list(CHINESE.values())
    verbalizer = read_pvp("c3", {"pattern": "{q}{options|numerals}"}).verbalizer(options=16)
    assert [ids[0][0] for ids in verbalizer.bind(real("cpm2")).ids] == NUMERALS


def test_chinese_rows_have_the_ids_of_their_code(real):
    fields = {"a": "好", "b": "一般", "options": ["好", "差"]}
    encoded = encode(real("cpm2"), "“{a}”的意思？{mask}“{b}”的意思", fields)
    assert encoded.ids == [39, 68, 41, 11, 1348, 19, 26050, 39, 304, 41, 11, 1348]
    encoded = encode(real("cpm2"), "文章：{a}问题：{b}？{mask}选项：{options|numerals}", fields)
    options = [50, 20, 68, 18, 230, 20, 546, 18]
    assert encoded.ids == [1395, 17, 68, 96, 17, 304, 19, 26050, 6295, 17, *options]
    assert encoded.masks == [7]
    encoded = encode(real("cpm2"), "{a}。这很{mask}。", fields)
    assert encoded.ids == [68, 12, 32, 52, 26050, 12]


@pytest.mark.parametrize(
    ("text", "subject", "mask"),
    [
        ("{soft:3} {sub} {soft:3} {mask} {soft:3}", [4, 5], 9),
        ("{soft:3} {mask} {soft:3} {sub} {soft:3}", [8, 9], 4),
    ],
)
def test_ptuning_positions(real, text, subject, mask):
    encoded = encode(real("bert_cased"), text, {"sub": "New York"})
    tokens = real("bert_cased").convert_ids_to_tokens(encoded.ids)
    assert tokens[0] == "[CLS]" and tokens[13] == "[SEP]" and len(tokens) == 14
    assert [tokens[i] for i in subject] == ["New", "York"] and encoded.masks == [mask]
    taken = {0, 13, mask, *subject}
    assert encoded.softs == [place for place in range(14) if place not in taken]
    assert encoded.types == [0] * 14


def test_ptuning_reads_left_to_right_backbones_at_the_last_vector(real):
    encoded = encode(real("gpt2"), "{soft:3} {sub} {soft:3} {mask}", {"sub": "Paris"})
    assert real("gpt2").convert_ids_to_tokens(encoded.ids)[3] == "ĠParis"
    assert encoded.softs == [0, 1, 2, 4, 5, 6] and encoded.masks == [6]
