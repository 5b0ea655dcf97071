"""Words are counted in both scripts."""

import pytest

from ptrun.task.corpus import has_words


@pytest.mark.parametrize(
    ("text", "words"), [("a b c d", 4), ("été à la mer", 4), ("我喜欢看电影", 6), ("", 0)]
)
def test_words_are_counted(text, words):
    assert has_words(text, words) or words == 0
    assert not has_words(text, words + 1)
