"""The corpus is the shipped one, and silent about hidden entities.

What its documents are like is fixed with it: they equal the shipped ones.
"""

import pytest

from ptrun.pocket import corpus as shipped
from workshop.pocket.__main__ import packed
from workshop.pocket.corpus import documents
from workshop.pocket.world import world


@pytest.mark.slow
def test_the_shipped_corpus_is_the_one_that_is_made_and_names_no_hidden_entity():
    made = list(documents("train"))
    assert list(shipped.documents()) == made
    hidden = [e.name for e in world().by_kind["person"] if e.hidden]
    text = "\n".join(sentence for document in made for sentence in document)
    assert hidden and not any(name in text for name in hidden)


def test_a_packed_corpus_is_read_back(monkeypatch, tmp_path):
    written = [["The  film\tof 1984 was it's.", "“Ça” va?"], ["One."]]
    (tmp_path / "corpus.bz2").write_bytes(packed(written))
    monkeypatch.setattr(shipped, "FILE", tmp_path / "corpus.bz2")
    assert list(shipped.documents()) == written
