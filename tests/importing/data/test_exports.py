"""What annotation tools and data sets export is read as it is, or refused with the reason."""

import json

import pytest

from ptrun.command.import_ import kinds
from ptrun.errors import UserError
from ptrun.importing.kinds import Data
from tests.importing.data.original import dump, imported, task
from tests.importing.data.test_conll import write

TEXT = "Ann Lee left Oslo ."
TAGS = ["B-PER", "I-PER", "O", "B-LOC", "O"]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(folder, part="train"):
    return [json.loads(line) for line in (folder / f"{part}.jsonl").read_text().splitlines()]


def tags_of(kind, source, *options, name="mine"):
    """Return the tags of the first sentence of train."""
    out = imported(kind, source, source.parent / "out", "--task", name, *options)
    return rows(out / name)[0]["ner_tags"]


SCHEMES = {
    "BIOES": ["B-PER", "E-PER", "O", "S-LOC", "O"],
    "BILOU": ["B-PER", "L-PER", "O", "U-LOC", "O"],
    "BMES": ["B-PER", "E-PER", "O", "S-LOC", "O"],
    "IOB1": ["I-PER", "I-PER", "O", "I-LOC", "O"],
    "IOE2": ["I-PER", "E-PER", "O", "E-LOC", "O"],
}
BEFORE = {"": "", "MultiCoNER": "# id 0\tdomain=en\n", "GermEval": "#\tn-tv.de vom 26.02.2005\n"}


@pytest.mark.parametrize("tags", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_schemes_and_comments_of_columns(project, tags, before):
    lines = "".join(f"{w}\t{t}\n" for w, t in zip(TEXT.split(), tags, strict=True))
    source = write(project / "columns", f"{before}{lines}\n{before}{lines}")
    assert tags_of("conll", source, name="conll03") == TAGS


def test_germeval_s_columns(project):
    pairs = enumerate(zip(TEXT.split(), TAGS, strict=True), 1)
    lines = "".join(f"{i}\t{word}\t{tag}\tO\n" for i, (word, tag) in pairs)
    source = write(project / "columns", f"#\thttp://x [2010]\n{lines}\n")
    assert tags_of("conll", source, "--words", "2", "--tags", "3", name="conll03") == TAGS


FORMLESS = {
    "w PER\nw PER\nw O\n": "expected O, B-TYPE, I-TYPE",
    "w b-per\nw i-per\n": "'b-per' is no tag",
    "Ann,B-PER\nleft,O\n": "is one column",
    "\tO\nleft\tO\n": "without a word",
}


@pytest.mark.parametrize(("lines", "told"), FORMLESS.items())
def test_lines_of_another_form_are_refused(project, lines, told):
    with pytest.raises(UserError, match=told):
        tags_of("conll", write(project / "columns", lines), name="conll03")


def test_entities_that_touch_are_two_where_the_first_has_its_end(project):
    source = write(project / "columns", "Ann E-PER\nLee E-PER\nBo I-PER\nDi E-PER\nEd L-PER\n")
    found = tags_of("conll", source, name="conll03")
    assert found == ["B-PER", "B-PER", "B-PER", "I-PER", "B-PER"]


def test_a_folder_of_columns_becomes_a_new_task(project):
    source = write(project / "columns", "Ann B-PER\nleft O\n\n")
    assert tags_of("conll", source, name="mine_too") == ["B-PER", "O"]
    assert (project / "ptrun_conf/task/mine_too.yaml").is_file()


def test_one_file_of_columns_is_divided_and_its_task_is_written(project):
    file = project / "all.conll"
    blocks = [
        "".join(f"{w}{i} {t}\n" for w, t in zip(["Ann", "left", "Oslo"], TAGS[1:4], strict=True))
        for i in range(20)
    ]
    file.write_text("\n".join(blocks))
    out = imported("conll", file, project / "out", "--task", "mine")
    sizes = [len(rows(out / "mine", part)) for part in ("train", "validation", "test")]
    assert sizes == [16, 2, 2]
    assert 'entities: ["LOC", "PER"]' in (project / "ptrun_conf/task/mine.yaml").read_text()


PLACES = [(0, 7, "PER"), (13, 17, "LOC")]
MARKS = {
    "lists": {"label": [*map(list, PLACES)]},
    "labels": {"labels": [*map(list, PLACES)]},
    "doccano": {
        "entities": [{"start_offset": s, "end_offset": e, "label": kind} for s, e, kind in PLACES]
    },
}


def marked(project, marks, count=10):
    """Write so many rows of marks, and return the file."""
    rows = [{"id": i, "text": f"{TEXT} {i}", **marks} for i in range(count)]
    dump(project / "a.jsonl", rows)
    return project / "a.jsonl"


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
@pytest.mark.parametrize("form", ["lines", "list"])
def test_the_forms_of_doccano(project, marks, form):
    file = marked(project, marks)
    if form == "list":
        file.write_text(f"[{','.join(file.read_text().splitlines())}]")
    assert tags_of("spans", file) == [*TAGS, "O"]


def test_rows_that_prodigy_rejects_are_no_gold(project, caplog):
    spans = [{"start": 0, "end": 7, "label": "PER"}]
    verdicts = ["accept"] * 20 + ["reject"] * 10 + ["ignore"] * 10
    made = [{"text": f"{TEXT} {i}", "spans": spans, "answer": v} for i, v in enumerate(verdicts)]
    dump(project / "a.jsonl", made)
    out = imported("spans", project / "a.jsonl", project / "out", "--task", "mine")
    parts = ("train", "validation", "test")
    assert sum(len(rows(out / "mine", part)) for part in parts) == 20


SHOWN = {"globalOffsets": {"start": 0, "end": 7}, "hypertextlabels": ["PER"]}
LABELLED = {"type": "labels", "value": {"start": 0, "end": 7, "labels": ["PER"]}}
STUDIO = {
    "places in what is shown": (f"{TEXT} {{}}", {"startOffset": 9, "endOffset": 1, **SHOWN}),
    "tags of HTML, no text to check": (
        *("<p><b>Ann</b> Lee &amp; {}</p>", {**SHOWN, "start": "/b[1]", "end": "/b[1]"}),
    ),
    "choices beside spans": (f"{TEXT} {{}}", {"choices": ["news"]}),
}


def label_studio(project, text, *results):
    tasks = [
        {"data": {"text": text.format(i)}, "annotations": [{"result": results}]} for i in range(10)
    ]
    (project / "a.json").write_text(json.dumps(tasks))
    return tags_of("label_studio", project / "a.json")


@pytest.mark.parametrize(("text", "value"), STUDIO.values(), ids=STUDIO)
def test_regions_of_label_studio(project, text, value):
    kind = "choices" if "choices" in value else "hypertextlabels"
    more = [LABELLED] if kind == "choices" else []
    tags = label_studio(project, text, *more, {"type": kind, "value": value})
    assert tags[:2] == ["B-PER", "I-PER"] and {*tags[2:]} == {"O"}


@pytest.mark.parametrize(
    ("kind", "told"), [("choices", "task=csv"), ("rectanglelabels", "expected labels, hyper")]
)
def test_other_regions_are_refused_by_type(project, kind, told):
    with pytest.raises(UserError, match=told):
        label_studio(project, TEXT, {"type": kind, "value": {kind: ["x"]}})


WHOLE, CHOPPED = {"label": ["news"]}, {"spans": [[0, 3, "B-PER"], [4, 7, "I-PER"]]}


@pytest.mark.parametrize(
    ("marks", "told"),
    [(WHOLE, "Labels of whole texts are task=csv"), (CHOPPED, "without B- and I")],
)
def test_marks_of_another_kind_are_explained(project, marks, told):
    with pytest.raises(UserError, match=told):
        tags_of("spans", marked(project, marks))


def test_an_empty_list_of_spans_does_not_hide_another(project):
    file = marked(project, {"spans": [], "label": [[0, 7, "PER"]]})
    assert tags_of("spans", file) == ["B-PER", "I-PER", "O", "O", "O", "O"]


def squad_file(file, version, *, impossible=False):
    asked = {"id": 1, "question": "Where?", "answers": [{"text": "Oslo", "answer_start": 13}]}
    hard = {"id": 2, "question": "When?", "answers": [], "is_impossible": True}
    inside = [{"context": TEXT, "qas": [asked, *([hard] if impossible else [])]}]
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({"version": version, "data": [{"paragraphs": inside}]}))


@pytest.mark.parametrize(("version", "impossible"), [("1.1", False), ("v2.0", True), ("x", True)])
def test_squad_s_own_files(project, version, impossible):
    """A question without an answer is of the second version, whatever the file says."""
    for part in ("train", "dev"):
        squad_file(project / "source" / f"{part}-{version}.json", version, impossible=impossible)
    out = imported("squad", project / "source", project / "out")
    folder = out / ("squad_v2" if impossible else "squad")
    first = rows(folder, "validation")[0]
    assert first["answers"] == {"text": ["Oslo"], "answer_start": [13]}
    assert [row["id"] for row in rows(folder)] == (["1", "2"] if impossible else ["1"])


def test_an_encoding_is_an_option_of_all_data(project):
    squad_file(project / "source" / "train-v1.1.json", "1.1")
    squad_file(project / "source" / "dev-v1.1.json", "1.1")
    for file in (project / "source").iterdir():
        file.write_bytes(file.read_text().replace("Where", "O\u00f9").encode("utf-16-le"))
    options = ("--encoding", "utf-16-le")
    out = imported("squad", project / "source", project / "out", *options)
    assert rows(out / "squad")[0]["question"] == "O\u00f9?"
    assert all("--encoding" in k.PARSER.flags for k in kinds().values() if isinstance(k, Data))


def test_squads_of_two_versions_in_a_folder_are_refused(project):
    for version in ("1.1", "2.0"):
        squad_file(project / "source" / f"train-v{version}.json", version)
        squad_file(project / "source" / f"dev-v{version}.json", version)
    with pytest.raises(UserError, match="several versions or files for one part"):
        imported("squad", project / "source", project / "out")


def test_tags_that_are_numbers_are_explained(tmp_path):
    from tests.small_runs import conll03

    folder = tmp_path / "conll03"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"tokens": ["Ann"], "ner_tags": [1]}\n')
    with pytest.raises(UserError, match=r"task.tag_names=\[O,B-PER"):
        conll03(tmp_path).load("train")


RTE = [["0", '"One', "two", "entailment"], ["1", "a", 'b"', "not_entailment"]]
COLA = [["gj04", "1", "", 'A "b" c.'], ["gj04", "0", "*", "Is b."]]
GLUE = {"CoLA": ("", COLA), "RTE": ("index\tsentence1\tsentence2\tlabel\n", RTE)}


@pytest.mark.parametrize("name", GLUE)
def test_glue_s_own_files(project, name, caplog):
    header, body = GLUE[name]
    folder = project / "source" / name
    folder.mkdir(parents=True)
    text = "\n".join("\t".join(row) for row in body)
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text(f"{header}{text}\nbroken line\n")
    (folder / "test.tsv").write_text("index\tsentence\tsentence1\tsentence2\n7\tone\ta\tb\n")
    out = imported("glue", project / "source", project / "out")
    made = f"glue_{name.lower()}"
    assert len(rows(out / made)) == 2 and rows(out / made)[0]["idx"] == 0
    assert rows(out / made, "test")[0].keys() & {"idx", "label"} == {"idx"}
    found = task(made, out).load("dev")
    assert [e.target for e in found] == (
        ["acceptable", "unacceptable"] if name == "CoLA" else ["entailment", "not_entailment"]
    )
    assert next(iter(found[0].fields.values())) == body[0][3 if name == "CoLA" else 1]


def test_a_file_of_glue_without_its_columns_is_refused(project):
    folder = project / "source" / "QNLI"
    folder.mkdir(parents=True)
    (folder / "train.tsv").write_text("a\tb\n")
    with pytest.raises(UserError, match="expected the columns question, sentence, label; found"):
        imported("glue", project / "source", project / "out")
