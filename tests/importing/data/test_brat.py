"""brat's documents become sentences of words and tags; what tags cannot say is refused by line."""

import pytest

from ptrun.errors import UserError
from tests.importing.data.original import imported, load

TEXT = "Ann met Bob in New\nYork.\n\nBo slept.\n"
SPANS = [("PER", "0 3", "Ann"), ("LOC", "15 18;19 23", "New York"), ("PER", "26 28", "Bo")]
MORE = "R1\tlikes Arg1:T1 Arg2:T2\nA1\tNeg T1\n#1\tNote T1\tx\n"
SENTENCES = {
    "Ann met Bob in New York .": ["B-PER", "O", "O", "O", "B-LOC", "I-LOC", "O"],
    "Bo slept .": ["B-PER", "O", "O"],
}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project, text=TEXT, spans=SPANS, more="", count=4):
    lines = [f"T{i}\t{label} {place}\t{said}\n" for i, (label, place, said) in enumerate(spans, 1)]
    data = text if isinstance(text, bytes) else text.encode()
    for number in range(count):
        folder = project / "corpus" / ("deep" if number % 2 else ".")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_bytes(data + b" x%d" % number)
        (folder / f"{number}.ann").write_text("".join(lines) + more)
    return project / "corpus"


def read(project, *options):
    out = imported("brat", project / "corpus", project / "out", "--task", "mine", *options)
    return [row for file in sorted((out / "mine").iterdir()) for row in load(file)]


READINGS = {
    "characters": ("👍 Ann", [("PER", "2 5", "Ann")]),
    "UTF-16 units": ("👍 Ann", [("PER", "3 6", "Ann")]),
    "line ends are one": ("\r\nx\r\nAnn", [("PER", "3 6", "Ann")]),
    "line ends are two": ("\r\nx\r\nAnn", [("PER", "5 8", "Ann")]),
    "a mark counts": (b"\xef\xbb\xbfAnn", [("PER", "1 4", "Ann")]),
    "a mark does not count": (b"\xef\xbb\xbfAnn", [("PER", "0 3", "Ann")]),
}


@pytest.mark.parametrize(("text", "spans"), READINGS.values(), ids=READINGS)
def test_the_texts_of_spans_say_how_characters_are_counted(project, text, spans):
    write(project, text, spans)
    rows = read(project)
    found = [[w for w, t in zip(r["tokens"], r["ner_tags"], strict=True) if t != "O"] for r in rows]
    assert [*filter(None, found)] == [[said for *_, said in spans]] * 4


def test_a_line_is_a_sentence_unless_a_span_goes_on(project, caplog):
    write(project, more=MORE)
    rows = {" ".join(row["tokens"]): row["ner_tags"] for row in read(project)}
    numbered = {f"x{number}": ["O"] for number in range(4)}
    assert rows == SENTENCES | numbered
    left_out = "12 rows, 4 left out: a relation; 4 left out: an attribute; 4 left out: a note"
    assert f"corpus: {left_out}" in caplog.text
    assert "imported from brat" in (project / "ptrun_conf/task/mine.yaml").read_text()


REFUSED = {
    "pieces": (
        [("ORG", "0 3;8 11", "Ann Bob")],
        "0.ann:1: T1 has several pieces, with other words",
    ),
    "overlap": (
        [SPANS[0], ("A", "0 7", "Ann met")],
        r"spans T1 of line 1 \(PER\) and T2 of line 2",
    ),
    "another text": ([("PER", "1 4", "Ann")], "span T1 of line 1 .* says 'Ann', but"),
    "no line": ([("PER", "x", "Ann")], r"0.ann:1: .*; expected T1, a tab, TYPE START END"),
}


@pytest.mark.parametrize(("spans", "told"), REFUSED.values(), ids=REFUSED)
def test_what_tags_cannot_say_is_refused_by_line(project, spans, told):
    write(project, spans=spans, count=1)
    with pytest.raises(UserError, match=told):
        read(project)
    assert not (project / "out").exists()


def test_a_text_without_annotations_or_the_reverse_is_refused(project):
    write(project, count=1)
    (project / "corpus/0.txt").unlink()
    with pytest.raises(UserError, match=r"0.txt: no such file; 0.ann marks its characters"):
        read(project)
    (project / "corpus/0.ann").rename(project / "corpus/0.a1")
    with pytest.raises(UserError, match=r"no file for train among 0.a1; .*of files \*.ann"):
        read(project)


def test_ten_documents_are_divided_whole(project):
    write(project, "Ann met.\nBo.\n", SPANS[:1], count=20)
    out = imported("brat", project / "corpus", project / "out", "--task", "mine") / "mine"
    texts = {
        part: [row["tokens"] for row in load(out / f"{part}.jsonl")]
        for part in ("train", "validation", "test")
    }
    assert [len(rows) for rows in texts.values()] == [48, 6, 6]
    assert all(["Bo", "."] in rows for rows in texts.values()), "rows of a text stay together"
