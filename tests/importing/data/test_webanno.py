"""WebAnno TSV 3 becomes words and tags of one layer; other layers are left out and counted."""

import pytest

from ptrun.errors import UserError
from tests.importing.data.original import imported, load

NER = "#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value"
POS = "#T_SP=x.POS|PosValue"
REL = "#T_RL=x.Dependency|kind|BT_x.POS"
ROLES = "#T_SP=x.Frame|ROLE_x.Frame:Arg_x.Link|x.Arg"


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(project, lines, *layers, version="3.3", ending="\n", mark=""):
    """Write three documents; a line has the number of sentence and word, a word, and cells."""
    folder = project / "tsv"
    folder.mkdir(exist_ok=True)
    for number in range(3):
        body = [line.replace(" ", "\t").replace("@", str(number)) + "\t" for line in lines]
        head = [f"{mark}#FORMAT=WebAnno TSV {version}", *layers, "", "", "#Text=x"]
        (folder / f"{number}.tsv").write_bytes(ending.join([*head, *body, ""]).encode())
    return folder


def read(folder, *options):
    out = imported("webanno", folder, folder.parent / "out", "--task", "mine", *options)
    rows = (row for file in sorted((out / "mine").iterdir()) for row in load(file))
    return [[[*row.values()][1], [*row.values()][2]] for row in rows]


LINES = [
    "1-1 0-3 Ann * PER",
    r"1-2 4-7 a\_\[@ _ _",
    "1-3 8-11 New *[1] LOC\\_X[1]",
    "2-1 12-16 York *[1] LOC\\_X[1]",
    "2-2 17-18 . _ _",
    "3-1 20-23 Bo * PER",
    "3-2 24-26 Cy * PER",
]


@pytest.mark.parametrize(
    ("version", "ending", "mark"), [("3.1", "\r\n", ""), ("3.3", "\n", "\ufeff")]
)
def test_spans_of_several_words_and_sentences(project, version, ending, mark):
    rows = read(write(project, LINES, NER, version=version, ending=ending, mark=mark))
    first = [w for w in rows if w[0][0] == "Ann"]
    assert sorted(words[1] for words, _ in first) == ["a_[0", "a_[1", "a_[2"]
    assert first[0][0][2:] == ["New", "York", "."]
    assert first[0][1] == ["B-PER", "O", "B-LOC_X", "I-LOC_X", "O"]
    assert [w for w in rows if w[0][0] == "Bo"] == [[["Bo", "Cy"], ["B-PER", "B-PER"]]] * 3


MANY = ["1-1 0-3 Ann N _ _ * PER subj 1-2", "1-2 4-6 is@ V role 1-1 _ _ _ _"]


def test_of_several_layers_one_is_typed_and_the_others_are_counted(project, caplog):
    folder = write(project, MANY, POS, ROLES, NER, REL)
    layers = "--layer POS --feature PosValue or --layer NamedEntity --feature value"
    with pytest.raises(UserError, match=f"0.tsv: one layer of spans is read; type {layers}."):
        read(folder)
    with pytest.raises(UserError, match=r"type --layer POS --feature PosValue or .* identifier or"):
        read(folder, "--layer", "Lemma")
    assert read(folder, "--layer", "NamedEntity")[0][1] == ["B-PER", "O"]
    assert "3 left out: words with Dependency kind" in caplog.text


def test_parts_of_speech_are_labels_of_words(project):
    rows = read(write(project, MANY, POS, ROLES, NER, REL), "--layer", "POS")
    assert rows[0][1] == ["N", "V"]
    assert "tagging.Tags" in (project / "ptrun_conf/task/mine.yaml").read_text()


def test_a_file_without_parts_of_speech_is_left_out(project, caplog):
    folder = write(project, [line.replace("Ann", "Ann@") for line in MANY], POS, ROLES, NER, REL)
    (folder / "3.tsv").write_text((folder / "0.tsv").read_text().replace("Ann0", "Ann3"))
    empty = (folder / "0.tsv").read_text().replace("\tN\t", "\t_\t").replace("\tV\t", "\t_\t")
    (folder / "0.tsv").write_text(empty)
    assert {tag for _, tags in read(folder, "--layer", "POS") for tag in tags} == {"N", "V"}
    assert "1 left out: a word without a tag" in caplog.text


REFUSED = {
    "stacked": (["1-1 0-3 Ann *[1]|*[2] A[1]|B[2]", "1-2 4-7 Lee *[2] B[2]"], "overlap"),
    "a part": (["1-1 0-5 Annas _ _", "1-1.1 0-3 Ann * PER"], "0.tsv:7: PER marks a part of a word"),
    "no word": (["Ann PER"], "0.tsv:6: 'Ann.*PER.*' is no word of WebAnno TSV 3"),
}


@pytest.mark.parametrize(("lines", "told"), REFUSED.values(), ids=REFUSED)
def test_what_tags_cannot_say_is_refused(project, lines, told):
    with pytest.raises(UserError, match=told):
        read(write(project, lines, NER))
    assert not (project / "out").exists()


def test_files_of_another_form_are_refused(project):
    with pytest.raises(UserError, match=r"0.tsv:1: .*; expected #FORMAT=WebAnno TSV 3"):
        read(write(project, LINES, NER, version="2"))
    with pytest.raises(UserError, match="type another file"):
        read(write(project, LINES))
