"""Exports of other tools: a right one is read, a changed one is read or refused in words."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from ptrun.importing import published
from ptrun.importing.spans import json_spans, label_studio, tagged
from tests.fuzz.strategies import JSON, read_or_refused, spoilt

TEXT = "Ann met Bob in Oslo"
PRODIGY = {
    "text": TEXT,
    "spans": [{"start": 0, "end": 3, "label": "PER", "token_start": 0}],
    "answer": "accept",
    "_input_hash": -5,
}
DOCCANO = {"id": 1, "text": TEXT, "label": [[0, 3, "PER"], [15, 19, "LOC"]]}
ENTITIES = {
    "id": 1,
    "text": TEXT,
    "entities": [{"id": 1, "label": "PER", "start_offset": 0, "end_offset": 3}],
    "relations": [],
}
REGION = {
    "type": "labels",
    "from_name": "label",
    "value": {"start": 0, "end": 3, "text": "Ann", "labels": ["PER"]},
}
STUDIO = {
    "id": 1,
    "data": {"text": TEXT},
    "annotations": [{"was_cancelled": False, "ground_truth": False, "result": [REGION]}],
}
QUESTION = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "a",
            "paragraphs": [{"context": TEXT, "qas": [QUESTION, {**QUESTION, "is_impossible": 1}]}],
        }
    ],
}


@st.composite
def changed(draw, right):
    """Draw a JSON value with up to three of its parts replaced, taken out or doubled."""
    value = json.loads(json.dumps(right))
    for _ in range(draw(st.integers(0, 3))):
        value = _changed(draw, value)
    return value


def _changed(draw, value):
    deeper = isinstance(value, list | dict) and value and draw(st.integers(0, 5))
    if not deeper:
        return draw(JSON)
    pairs = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    key, inner = draw(st.sampled_from(pairs))
    how = draw(st.sampled_from(["change", "change", "drop", "double"]))
    if how == "drop":
        return (
            [v for k, v in pairs if k != key] if isinstance(value, list) else _without(value, key)
        )
    if how == "double" and isinstance(value, list):
        return [*value, inner]
    new = [(k, _changed(draw, v) if k == key else v) for k, v in pairs]
    return [v for _, v in new] if isinstance(value, list) else dict(new)


def _without(value, key):
    return {k: v for k, v in value.items() if k != key}


def checked(rows):
    """Return rows that can be written as JSON."""
    found = list(rows)
    json.dumps(found, ensure_ascii=False, allow_nan=False, default=vars).encode("utf-8")
    return found


def tokens(rows):
    return checked(tagged(marked.where, marked.text, marked.spans) for marked in rows)


@given(st.lists(st.sampled_from([PRODIGY, DOCCANO, ENTITIES]).flatmap(changed), max_size=3))
@example([{**PRODIGY, "spans": [[0, 3]]}])
@example([{**DOCCANO, "label": {}}])
def test_marked_spans_are_read_or_refused(place, rows):
    file = place / "s.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for words, tags in read_or_refused(tokens, json_spans(file, "text")) or ():
        assert len(words) == len(tags) and all(words)


@given(st.lists(changed(STUDIO), max_size=3) | JSON)
@example([{**STUDIO, "annotations": [{"result": None}]}])
def test_label_studio_is_read_or_refused(place, tasks):
    file = place / "studio.json"
    file.write_text(json.dumps(tasks))
    read_or_refused(tokens, label_studio(file, "text"))


@given(changed(SQUAD))
@example({**SQUAD, "data": [{"paragraphs": None}]})
def test_squad_is_read_or_refused(place, content):
    file = place / "train-v2.0.json"
    file.write_text(json.dumps(content))

    def read():
        return [row for made in published.squad(file) for row in checked(made.rows)]

    for row in read_or_refused(read) or ():
        assert len(row["answers"]["text"]) == len(row["answers"]["answer_start"])


GLUE_ROWS = {
    "RTE": "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\te\tnot_entailment\n",
    "CoLA": "gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    "\tscore\n0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t5.000\n",
}


@given(st.sampled_from(sorted(GLUE_ROWS)), st.data())
def test_glue_is_read_or_refused(place, name, data):
    folder = place / "glue"
    for other in GLUE_ROWS:
        (folder / other).mkdir(parents=True, exist_ok=True)
        (folder / other / "train.tsv").write_text(GLUE_ROWS[other])
    content = data.draw(spoilt(st.just(GLUE_ROWS[name].encode())))
    (folder / name / "train.tsv").write_bytes(content)
    for made in published.glue(folder):
        read_or_refused(checked, made.rows)


SUPERGLUE = {
    "CB": {"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 3},
    "COPA": {
        "premise": "a",
        "choice1": "b",
        "choice2": "c",
        "question": "cause",
        "label": 0,
        "idx": 0,
    },
    "WSC": {
        "text": "Ann said she came",
        "target": {"span1_text": "Ann", "span1_index": 0, "span2_text": "she", "span2_index": 2},
        "label": True,
        "idx": 0,
    },
    "MultiRC": {
        "idx": 0,
        "passage": {
            "text": "a",
            "questions": [
                {"question": "b", "idx": 0, "answers": [{"text": "c", "idx": 0, "label": 1}]}
            ],
        },
    },
    "ReCoRD": {
        "idx": 0,
        "passage": {"text": TEXT, "entities": [{"start": 0, "end": 2}]},
        "qas": [{"idx": 0, "query": "@placeholder met", "answers": [{"text": "Ann"}]}],
    },
}


@given(
    st.sampled_from(sorted(SUPERGLUE)).flatmap(
        lambda k: st.tuples(st.just(k), changed(SUPERGLUE[k]))
    )
)
def test_superglue_is_read_or_refused(place, drawn):
    name, row = drawn
    folder = place / f"superglue_{name}" / name
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        (folder / f"{part}.jsonl").write_text(json.dumps(row) + "\n")
    for made in read_or_refused(published.superglue, folder.parent) or ():
        read_or_refused(checked, made.rows)


def test_the_unchanged_exports_are_read(place):
    """Else the tests above could pass on refusals alone."""
    file = place / "right.json"
    for right, reader in [(PRODIGY, json_spans), (DOCCANO, json_spans), (ENTITIES, json_spans)]:
        file.write_text(json.dumps(right))
        assert len(checked(reader(file, "text"))) == 1
    file.write_text(json.dumps([STUDIO]))
    assert len(checked(label_studio(file, "text"))) == 1
    questions = place / "train-right.json"
    questions.write_text(json.dumps(SQUAD))
    assert [len(checked(made.rows)) for made in published.squad(questions)] == [2]
    for name, row in SUPERGLUE.items():
        folder = place / f"right_{name}"
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part in ("train", "val"):
            (folder / name / f"{part}.jsonl").write_text(json.dumps(row) + "\n")
        assert all(checked(made.rows) for made in published.superglue(folder))
    for name, text in GLUE_ROWS.items():
        folder = place / "right_glue" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "train.tsv").write_text(text)
    assert len([checked(made.rows) for made in published.glue(folder.parent)]) == len(GLUE_ROWS)
