"""Marked spans become the words and tags of a tagging task, known or new."""

import json
import logging
import shutil

import pytest

from ptrun.errors import UserError
from ptrun.importing.spans import Span, tagged, words
from tests.importing.data.original import dump, imported, task

TEXT = "Ann Lee met Bob's band in New York."
PEOPLE = [{"start": 0, "end": 7, "label": "PER"}, {"start": 12, "end": 15, "label": "PER"}]
PLACE = {"start": 26, "end": 34, "label": "LOC"}


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def split(text):
    return [text[start:end] for start, end in words(text)]


def entities(tokens, tags):
    """Return the words and type of each entity, read back from tags."""
    found = []
    for token, tag in zip(tokens, tags, strict=True):
        if tag.startswith("B-"):
            found.append([tag[2:], token])
        elif tag.startswith("I-"):
            assert found[-1][0] == tag[2:]
            found[-1].append(token)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TEXT, "Ann Lee met Bob ' s band in New York ."),
        ("3,5 % of U.S. A_b", "3 , 5 % of U . S . A_b"),
        ("奥斯陆 in 東京", "奥 斯 陆 in 東 京"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("e\u0301te\u0301\u00a0x\ufeff y\u200bz", "e\u0301te\u0301 x y\u200bz"),
        ("good👍🏽!", "good 👍 🏽 !"),
    ],
)
def test_words(text, expected):
    assert split(text) == expected.split(" ")


def test_spans_become_iob2_whatever_their_order():
    spans = [Span(26, 34, "LOC"), Span(12, 15, "PER"), Span(0, 7, "PER")]
    tokens, tags = tagged("x", TEXT, spans)
    assert entities(tokens, tags) == [["PER", "Ann", "Lee"], ["PER", "Bob"], ["LOC", "New", "York"]]
    assert tagged("x", TEXT, spans[::-1]) == (tokens, tags)


def test_spans_that_touch_begin_anew_and_spaces_at_their_ends_do_not_count():
    assert tagged("x", "Ann Bob", [Span(0, 4, "A"), Span(4, 7, "A")])[1] == ["B-A", "B-A"]


CUT = [
    ([Span(0, 2, "A")], r"span 0-2 \(A\), 'An', cuts the word 'Ann'. Mark whole words: 0-3"),
    ([Span(1, 7, "A")], r"span 1-7 \(A\), 'nn Lee', cuts the word 'Ann'.*: 0-7"),
    ([Span(0, 7, "A"), Span(4, 7, "B")], r"spans 0-7 \(A\) and 4-7 \(B\) overlap"),
    ([Span(0, 3, "A"), Span(0, 3, "A")], r"spans 0-3 \(A\) and 0-3 \(A\) overlap"),
    ([Span(30, 36, "A")], "span 30-36 .* outside the text of 35 characters"),
    ([Span(-3, 3, "A")], "outside the text"),
    ([Span(3, 3, "A")], "outside the text"),
    ([Span(3, 4, "A")], "has no word, only spaces"),
    ([Span(0, 3, "A", "Lee")], "says 'Lee', but the text there is 'Ann'. start and end count char"),
]


@pytest.mark.parametrize(("spans", "told"), CUT)
def test_spans_that_cannot_be_tags_are_refused(spans, told):
    with pytest.raises(UserError, match=f"^x: .*{told}"):
        tagged("x", TEXT, spans)


def marked(number=12):
    texts = [TEXT.replace("Ann", name) for name in map(chr, range(65, 65 + number))]
    return [{"text": t, "spans": [{"start": 0, "end": 1, "label": "PER"}]} for t in texts]


def test_one_file_becomes_a_new_task_of_three_parts(project, capsys):
    dump(project / "marked.jsonl", [*marked(30), *marked(30)])
    out = imported("spans", project / "marked.jsonl", project / "d", "--task", "mine")
    data = task("mine", out)
    assert "ptrun_conf/task/mine.yaml: options of task=mine" in capsys.readouterr().out
    parts = {p: {e.fields["tokens"][0] for e in data.load(p)} for p in ("train", "dev", "test")}
    assert [len(data.load(part)) for part in parts] == [48, 6, 6]
    assert [len(names) for names in parts.values()] == [24, 3, 3]
    assert len(set.union(*parts.values())) == 30, "a repeated text is in one part only"
    assert data.labels == ["O", "B-PER", "I-PER"]


def test_the_options_that_a_killed_import_left_are_taken_as_its_own(project):
    dump(project / "marked.jsonl", marked(30))
    given = ("spans", project / "marked.jsonl", project / "d", "--task", "mine")
    imported(*given)
    shutil.rmtree(project / "d")
    assert task("mine", imported(*given)).load("train")


def test_a_folder_gives_the_parts_and_spans_may_be_lists(project):
    row = {"note": TEXT, "entities": [[0, 7, "PER"], [26, 34, "LOC"]]}
    dump(project / "s" / "my_train.jsonl", [row, {"note": "None .", "entities": []}])
    dump(project / "s" / "my_dev.jsonl", [row])
    imported("spans", project / "s", project / "d", "--task", "mine", "--text", "note")
    data = task("mine", project / "d")
    first, second = data.load("train")
    assert entities(first.fields["tokens"], first.target)[1] == ["LOC", "New", "York"]
    assert second.target == ["O", "O"] and not data.has("test") and len(data.load("dev")) == 1


def test_a_known_task_names_fields_and_types(project):
    source = project / "m.jsonl"
    dump(source, marked())
    data = task("conll03", imported("spans", source, project / "d", "--task", "conll03"))
    assert [len(data.load(part)) for part in ("train", "dev", "test")] == [10, 1, 1]
    assert not (project / "ptrun_conf").exists()
    dump(source, [{"text": TEXT, "spans": [{**PLACE, "label": "CITY"}]}] * 3 + marked())
    with pytest.raises(
        UserError, match=r"m.jsonl:1: 'B-CITY' is of no type of the task: PER, ORG, LOC"
    ):
        imported("spans", source, project / "e", "--task", "conll03")


def studio(text, *regions, **more):
    values = [{"labels": [r["label"]], "text": text[r["start"] : r["end"]], **r} for r in regions]
    result = [*({"type": "labels", "value": value} for value in values), {"type": "relation"}]
    annotation = {"result": result, "was_cancelled": False, **more}
    return {"id": 7, "data": {"text": text}, "annotations": [annotation], "predictions": []}


def write_studio(file, tasks):
    file.write_text(json.dumps(tasks, indent=1), encoding="utf-8")
    return file


def test_an_export_of_label_studio_equals_the_same_spans(project, caplog):
    texts = [TEXT.replace("Lee", name) for name in ("Lea", "Roy", "Kim", "Poe")]
    spans = [*PEOPLE, PLACE]
    skipped = [{**studio("x", was_cancelled=True)}, {**studio("x"), "annotations": []}]
    file = write_studio(project / "e.json", [*(studio(t, *spans) for t in texts), *skipped])
    dump(project / "e.jsonl", [{"text": t, "spans": spans} for t in texts])
    logging.getLogger("ptrun").propagate = True
    imported("label_studio", file, project / "a", "--task", "mine")
    left_out = (
        "2 left out: no annotation, or a cancelled one; 4 left out: a result of type relation"
    )
    assert f"{file}: 6 rows, {left_out}" in caplog.messages
    imported("spans", project / "e.jsonl", project / "b", "--task", "mine")
    for name in ("train", "validation", "test"):
        ours, theirs = (project / side / "mine" / f"{name}.jsonl" for side in "ab")
        assert ours.read_text() == theirs.read_text() != ""


def test_of_several_annotations_the_ground_truth_counts(project):
    two = studio(TEXT, *PEOPLE)
    two["annotations"] += studio(TEXT, PLACE, ground_truth=True)["annotations"]
    file = write_studio(project / "train.json", [two])
    imported("label_studio", project, project / "a", "--task", "mine", "--train", str(file))
    (row,) = map(json.loads, (project / "a" / "mine" / "train.jsonl").read_text().splitlines())
    assert entities(row["tokens"], row["ner_tags"]) == [["LOC", "New", "York"]]
    two["annotations"][1]["ground_truth"] = False
    write_studio(file, [two])
    with pytest.raises(UserError, match="task 7: 2 annotations, 0 marked as ground truth"):
        imported("label_studio", file, project / "b", "--task", "mine")


EMPTY = "".join(f'{{"text": "{text}", "spans": []}}\n' for text in "abc")
REFUSED = [
    ("spans", '{"text": "a b c"}', "m.jsonl:1: no field 'spans' or 'entities'; this row has text"),
    ("spans", '{"note": "a", "spans": []}', "m.jsonl:1: no field 'text'.* --text KEY"),
    ("spans", '{"text": "a", "spans": [1]}', "field 'spans' is .*; expected objects"),
    ("spans", '{"text": "a", "spans": [[0, true, "A"]]}', "'end' is True; expected a whole"),
    ("spans", '{"text": "a", "spans": [[0, 1, " "]]}', "empty label"),
    ("spans", '{"text": " ", "spans": []}\n' * 3, "m.jsonl:1: . . has no word"),
    ("spans", EMPTY, "no text has a span"),
    ("label_studio", "{}", "no field 'annotations'"),
    ("label_studio", "[1]", "is not an object"),
    ("label_studio", '[{"text": "a"}]', "task 0: no field 'annotations'. Export .*JSON-MIN"),
    ("conll", "", "m.jsonl: no examples in it"),
    ("spans", '{"text": "x", "spans": []}\n' * 3, "m.jsonl: 1 different texts; expected at le"),
]


@pytest.mark.parametrize(("kind", "content", "told"), REFUSED)
def test_other_files_are_refused_and_nothing_is_written(project, kind, content, told):
    (project / "m.jsonl").write_text(content)
    with pytest.raises(UserError, match=told):
        imported(kind, project / "m.jsonl", project / "out", "--task", "mine")
    assert [file.name for file in project.iterdir()] == ["m.jsonl"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--task", "../x"], r"--task \.\./x: use letters, digits and _"),
        (["--task", "mine", "--words", "1"], "unrecognized arguments: --words 1"),
        ([], "arguments are required: --task"),
    ],
)
def test_wrong_options_are_refused(project, options, told):
    with pytest.raises(UserError, match="absent: no such file or folder"):
        imported("spans", project / "absent", project / "out", "--task", "mine")
    dump(project / "m.jsonl", marked())
    with pytest.raises(UserError, match=told):
        imported("spans", project / "m.jsonl", project / "out", *options)


def counted(text, units):
    """Return a text of Label Studio's whose last word is a name."""
    places = [text.index("Ann"), text.index("Ann") + 3]
    if units:
        places = [len(text[:place].encode("utf-16-le")) // 2 for place in places]
    made = studio(text)
    value = {"start": places[0], "end": places[1], "text": "Ann", "labels": ["PER"]}
    made["annotations"][0]["result"] = [{"type": "labels", "from_name": "who", "value": value}]
    return made


@pytest.mark.parametrize("units", [True, False])
def test_label_studio_may_count_utf_16_units(project, units):
    tasks = [counted(f"👍 {i} 𠮷 Ann", units) for i in range(3)]
    out = imported(
        "label_studio", write_studio(project / "e.json", tasks), project / "o", "--task", "m"
    )
    for part in (out / "m").iterdir():
        row = json.loads(part.read_text())
        assert row["tokens"][2:] == ["𠮷", "Ann"] and row["ner_tags"] == ["O", "O", "O", "B-PER"]
    del tasks[0]["annotations"][0]["result"][0]["value"]["text"]
    with pytest.raises(UserError, match="does not say its text, and an emoji before its end"):
        imported(
            "label_studio", write_studio(project / "f.json", tasks), project / "p", "--task", "n"
        )


WHOLE = {
    "choices": r"task.label=feeling task.text=text$",
    "taxonomy": r"task.kind=multilabel task.label=feeling task.text=text$",
    "rating": r"task.kind=regression task.label=feeling task.text=text$",
    "textarea": r"task.answer=feeling task.text=text$",
}


@pytest.mark.parametrize("task", ["c3", "pocket_sentiment"])
@pytest.mark.parametrize("kind", WHOLE)
def test_labels_of_whole_texts_lead_to_another_command(project, task, kind):
    made = studio(TEXT)
    value = {"from_name": "feeling", "to_name": "text", "type": kind, "value": {kind: ["good"]}}
    made["annotations"][0]["result"] = [value]
    file = write_studio(project / "e.json", [made] * 3)
    with pytest.raises(UserError, match=f"ptrun task=csv task.train=FILE {WHOLE[kind]}"):
        imported("label_studio", file, project / "o", "--task", task)
