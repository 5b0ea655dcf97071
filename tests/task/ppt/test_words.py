"""Words are counted and cut in both scripts."""

import pytest

from ptrun.task.ppt.words import cut, has_words

CASES = [
    ("one two  three", 3, "one two  three"),
    ("one two  three", 2, "one two"),
    ("naïve café au lait", 2, "naïve café"),
    ("我喜欢看电影", 3, "我喜欢"),
    ("看 GPT2 写的书", 3, "看 GPT2 写"),
    ("  one two", 1, "  one"),
]


@pytest.mark.parametrize(("text", "most", "kept"), CASES)
def test_a_text_keeps_its_first_words(text, most, kept):
    assert cut(text, most) == kept


@pytest.mark.parametrize(
    ("text", "words"), [("a b c d", 4), ("été à la mer", 4), ("我喜欢看电影", 6), ("", 0)]
)
def test_words_are_counted(text, words):
    assert has_words(text, words) or words == 0
    assert not has_words(text, words + 1)
