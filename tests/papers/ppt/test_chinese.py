"""Chinese corpora: a character is a word, and every kind of example is made as in English."""

import pytest

from ptrun.papers.corpus import has_words
from ptrun.papers.labelled import Labelled
from ptrun.papers.ppt import MAKERS, SIX, UNIFIED, Construction
from tests.papers.ppt.corpora import write

MANY = dict.fromkeys(("train", "validation", "test"), 2_000)


def told(document, line):
    return f"第{document}篇文章的第{line}句话说的是兰州的公交线路。"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return documents of seven lines, one of them long."""
    folder = tmp_path_factory.mktemp("zh")
    documents = [[*(told(d, i) for i in range(6)), told(d, 6) * 30] for d in range(80)]
    return str(write(folder, documents))


@pytest.mark.parametrize("make", MAKERS)
def test_all_kinds_are_made(corpus, make):
    made = [row for _, row in Construction(corpus=corpus, make=make, examples=MANY).rows("train")]
    assert len(made) > 400
    for row in made if make != "nsp" else ():
        layout = UNIFIED[len(row["options"])] if make == "unified" else SIX
        assert row["limits"] == {"query": layout.query, "options": layout.option}


@pytest.mark.parametrize(
    ("text", "words"), [("a b c d", 4), ("été à la mer", 4), ("我喜欢看电影", 6), ("", 0)]
)
def test_words_are_counted(text, words):
    assert has_words(text, words) or words == 0
    assert not has_words(text, words + 1)


def test_lines_for_a_classifier_are_counted_in_characters(corpus):
    own = Labelled(corpus=corpus, examples=MANY, labeller="run:x", shards="/nowhere")
    (_, lines), *_ = own.waiting()
    assert len(lines) == 80 * 7 and all(len(line.text) > 10 for line in lines)
