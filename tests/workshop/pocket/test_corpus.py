"""The corpus is large, connected, rich in words and silent about hidden entities."""

import re
from itertools import islice
from statistics import mean

import pytest

from ptrun.pocket import corpus as shipped
from workshop.pocket.__main__ import packed
from workshop.pocket.corpus import DOCUMENTS, documents
from workshop.pocket.world import world

WORD = re.compile(r"\w+|[^\w\s]")


@pytest.fixture(scope="module")
def sample() -> list[list[str]]:
    return list(islice(documents("train"), 8000))


@pytest.mark.slow
def test_documents_are_lists_of_sentences(sample):
    assert all(document for document in sample)
    assert mean(map(len, sample)) >= 3
    assert all(s == s.strip() and s[-1] in ".?!" for document in sample for s in document)


@pytest.mark.slow
def test_there_are_one_and_a_half_to_three_million_words(sample):
    tokens = sum(len(WORD.findall(s)) for document in sample for s in document)
    assert 1.5e6 <= tokens / len(sample) * DOCUMENTS["train"] <= 3e6


@pytest.mark.slow
def test_there_are_1500_different_words(sample):
    words = {w for document in sample for s in document for w in WORD.findall(s) if w.isalpha()}
    assert len(words) >= 1500
    assert sum(word.islower() for word in words) >= 1000


def test_hidden_entities_are_not_named(sample):
    hidden = [e.name for e in world().by_kind["person"] if e.hidden]
    text = "\n".join(s for document in sample for s in document)
    assert hidden
    assert not any(name in text for name in hidden)


def test_splits_start_differently_and_each_is_repeatable(sample):
    assert list(islice(documents("train"), 20)) == sample[:20]
    assert list(islice(documents("validation"), 20)) != sample[:20]


@pytest.mark.slow
def test_the_shipped_corpus_is_the_one_that_is_made():
    assert list(shipped.documents()) == list(documents("train"))


def test_a_packed_corpus_is_read_back(monkeypatch, tmp_path):
    written = [["The  film\tof 1984 was it's.", "“Ça” va?"], ["One."]]
    (tmp_path / "corpus.bz2").write_bytes(packed(written))
    monkeypatch.setattr(shipped, "FILE", tmp_path / "corpus.bz2")
    assert list(shipped.documents()) == written


def test_an_unknown_split_is_named():
    with pytest.raises(ValueError, match="split is 'test'; allowed are train, validation"):
        next(iter(documents("test")))
