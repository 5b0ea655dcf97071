"""spaCy's training files become words and tags, as spaCy reads them."""

import json
import sys

import pytest

from ptrun.errors import UserError
from tests import tiers
from tests.importing.data.original import imported, load

WORDS, TAGS = ["Ann", "Lee", "met", "Bo"], ["B-PER", "I-PER", "O", "B-PER"]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(file, kind="spacy"):
    out = imported(kind, file, file.parent / "out", "--task", "mine")
    rows = (row for file in sorted((out / "mine").iterdir()) for row in load(file))
    return sorted((row["tokens"], row["ner_tags"]) for row in rows)


def expected(count=4):
    return [([*WORDS, f"x{number}"], [*TAGS, "O"]) for number in range(count)]


def test_pipes(project):
    lines = [
        " ".join(f"{word}|X|{tag}" for word, tag in zip(words, tags, strict=True))
        for words, tags in expected()
    ]
    for kind in ("spacy", "conll"):
        file = project / kind / "a.iob"
        file.parent.mkdir()
        file.write_text("\n\n".join(lines))
        (project / "ptrun_conf/task/mine.yaml").unlink(missing_ok=True)
        assert read(file, kind) == expected()
    file.write_text(lines[0] + "\nAnn|B-PER y")
    with pytest.raises(UserError, match=r"a.iob:2: .*expected WORD\|TAG"):
        read(file, "conll")


def test_training_json(project, caplog):
    biluo = {"B-PER": "B-PER", "I-PER": "L-PER", "O": "O"}
    sentences = [
        {"tokens": [{"orth": w, "ner": biluo[t]} for w, t in zip(words, tags, strict=True)]}
        for words, tags in expected()
    ]
    for sentence in sentences:
        sentence["tokens"][3]["ner"] = "U-PER"
    sentences.append({"tokens": [{"orth": "Ann", "ner": "-"}]})
    file = project / "a.json"
    file.write_text(json.dumps([{"id": 0, "paragraphs": [{"sentences": sentences}]}]))
    assert read(file) == expected()
    assert "5 rows, 1 left out: a word without a tag (-)" in caplog.text


@pytest.mark.parametrize("kind", ["spacy", "spans"])
@pytest.mark.parametrize("form", ["list", "lines"])
def test_pairs_of_a_text_and_its_entities(project, kind, form):
    marks = {"entities": [[0, 7, "PER"], [12, 14, "PER"]]}
    pairs = [[" ".join(words), marks] for words, _ in expected()]
    lines = "".join(json.dumps(pair) + "\n" for pair in pairs)
    (project / "a.json").write_text(lines if form == "lines" else json.dumps(pairs, indent=1))
    assert read(project / "a.json", kind) == expected()


def test_a_docbin_needs_spacy(project, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    (project / "a.spacy").write_bytes(b"x")
    with pytest.raises(UserError, match="pip install spacy"):
        read(project / "a.spacy")


def test_a_docbin_is_read_as_spacy_reads_it(project, caplog):
    tiers.package("spacy")
    from spacy import blank
    from spacy.tokens import Doc, DocBin

    vocab = blank("xx").vocab
    docs = [Doc(vocab, words=[*words, "\n"], ents=[*tags, "O"]) for words, tags in expected(2)]
    joined = Doc.from_docs([Doc(vocab, words=w, ents=t) for w, t in expected()[2:]])
    for token in joined:
        token.is_sent_start = token.i in (0, 1, 5)  # 1 is inside a span, which is not cut
    without = Doc(vocab, words=["a"])
    file = project / "a.spacy"
    DocBin(docs=[*docs, joined, without]).to_disk(file)
    assert read(file) == expected()
    assert "1 left out: a doc without doc.ents" in caplog.text
    file.write_bytes(b"x")
    with pytest.raises(UserError, match="not readable as a DocBin"):
        read(file)
