"""Exports of other tools: a right one is read, a changed one is read or refused in words."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptrun.importing.brat import brat
from ptrun.importing.conll import conll
from ptrun.importing.spacy import spacy
from ptrun.importing.spans import json_spans, label_studio
from ptrun.importing.webanno import webanno
from ptrun.papers import published
from ptrun.task.source import Account
from tests.fuzz.strategies import JSON, read_or_refused, spoilt

TEXT = "Ann met Bob in Oslo"
PRODIGY = {"text": TEXT, "answer": "accept", "_input_hash": -5}
PRODIGY["spans"] = [{"start": 0, "end": 3, "label": "PER", "token_start": 0}]
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
ANNOTATION = {"was_cancelled": False, "ground_truth": False, "result": [REGION]}
STUDIO = {"id": 1, "data": {"text": TEXT}, "annotations": [ANNOTATION]}
QUESTION = {"id": "q", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
PARAGRAPH = {"context": TEXT, "qas": [QUESTION, {**QUESTION, "is_impossible": 1}]}
SQUAD = {"version": "v2.0", "data": [{"title": "a", "paragraphs": [PARAGRAPH]}]}


GLUE = {
    "RTE": "index\tsentence1\tsentence2\tlabel\n0\ta b\tc\tentailment\n1\td\te\tnot_entailment\n",
    "CoLA": "gj04\t1\t\tIt rains.\ngj04\t0\t*\tIt rain.\n",
    "STS-B": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    "\tscore\n0\tg\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t5.000\n",
}


ASKED = {"question": "b", "idx": 0, "answers": [{"text": "c", "idx": 0, "label": 1}]}
SUPERGLUE = {
    "CB": {"premise": "a", "hypothesis": "b", "label": "neutral", "idx": 3},
    "COPA": {**dict.fromkeys(("premise", "choice1", "choice2"), "a"), "question": "cause"}
    | {"label": 0, "idx": 0},
    "WSC": {
        "text": "Ann said she came",
        "target": {"span1_text": "Ann", "span1_index": 0, "span2_text": "she", "span2_index": 2},
        "label": True,
        "idx": 0,
    },
    "MultiRC": {"idx": 0, "passage": {"text": "a", "questions": [ASKED]}},
    "ReCoRD": {
        "idx": 0,
        "passage": {"text": TEXT, "entities": [{"start": 0, "end": 2}]},
        "qas": [{"idx": 0, "query": "@placeholder met", "answers": [{"text": "Ann"}]}],
    },
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
    if how == "double" and isinstance(value, list):
        return [*value, inner]
    kept = pairs if how != "drop" else [(k, v) for k, v in pairs if k != key]
    new = [(k, _changed(draw, v) if k == key else v) for k, v in kept]
    return [v for _, v in new] if isinstance(value, list) else dict(new)


def checked(rows):
    """Return rows that can be written as JSON."""
    found = list(rows)
    json.dumps(found, ensure_ascii=False, allow_nan=False, default=vars).encode("utf-8")
    return found


def spans(place, rows):
    file = place / "s.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in (rows if type(rows) is list else [rows])))
    return tokens(json_spans(file, Account()))


def studio(place, content):
    file = place / "studio.json"
    file.write_text(json.dumps(content))
    return tokens(label_studio(file, Account()))


def tokens(rows):
    found = checked((words.tokens, words.tags) for words in rows)
    assert all(len(words) == len(tags) and all(words) for words, tags in found)
    return found


def squad(place, content):
    file = place / "train-v2.0.json"
    file.write_text(json.dumps(content))
    rows = [row for made in published.squad(file) for row in checked(made.rows)]
    assert all(len(r["answers"]["text"]) == len(r["answers"]["answer_start"]) for r in rows)
    return rows


def superglue(name, place, row):
    folder = place / f"superglue_{name}" / name
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "val"):
        (folder / f"{part}.jsonl").write_text(json.dumps(row) + "\n")
    return [row for made in published.superglue(folder.parent) for row in checked(made.rows)]


def glue(name, place, content):
    folder = place / f"glue_{name}" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.tsv").write_bytes(content)
    return [row for made in published.glue(folder.parent) for row in checked(made.rows)]


FILES = {
    "a.conllu": "# Bo\n1\tBo\tbo\tX\t_\t_\t0\troot\t_\t_\n2-3\tx\t_\t_\t_\t_\t_\t_\t_\t_\n\n",
    "a.csv": 'Sentence #,Word,POS,Tag\nSentence: 1,"a ""b",NN,B-per\n,,,\n,c,NN,O\n',
    "a.iob": "Ann|NNP|B-PER met|VBD|O\n\nBo|NNP|B-PER met|VBD|O\n",
    "a.ann": "T1\tPER 0 3\tAnn\nT2\tLOC 8 11;12 14\tBob in\nR1\tx Arg1:T1 Arg2:T2\n",
    "a.tsv": "#FORMAT=WebAnno TSV 3.3\n#T_SP=x.Name|id|value\n\n#Text=Ann\n1-1\t0-3\tAnn\t*[1]\t"
    "PER\\_[1]\t\n1-1.1\t0-1\tA\t_\t_\t\n1-2\t4-5\tx\t_\t*|O\t\n",
}
"""Files of lines, by the name that says which reader reads them."""


def lines(name, place, content):
    file = place / name
    file.write_bytes(content)
    file.with_suffix(".txt").write_text(TEXT)
    read = {".ann": brat, ".tsv": webanno, ".csv": conll}.get(file.suffix, spacy)
    return tokens(read(file, Account()))


EXPORTS = {
    **{name: (text.encode(), partial(lines, name)) for name, text in FILES.items()},
    "spacy": ([["Ann met", {"entities": [[0, 3, "PER"]]}]], spans),
    "prodigy": ([PRODIGY], spans),
    "doccano": ([DOCCANO], spans),
    "entities": ([ENTITIES], spans),
    "label studio": ([STUDIO], studio),
    "squad": (SQUAD, squad),
    **{name: (row, partial(superglue, name)) for name, row in SUPERGLUE.items()},
    **{name: (text.encode(), partial(glue, name)) for name, text in GLUE.items()},
}


ONCE_RAISED = {
    "prodigy": {**PRODIGY, "spans": [[0, 3]]},
    "doccano": {**DOCCANO, "label": {}},
    "label studio": [{**STUDIO, "annotations": [{"result": None}]}],
    "squad": {**SQUAD, "data": [{"paragraphs": None}]},
}


@pytest.mark.parametrize("name", EXPORTS)
@given(data=st.data())
def test_a_changed_export_is_read_or_refused(place, name, data):
    right, read = EXPORTS[name]
    if name in ONCE_RAISED:
        read_or_refused(read, place, ONCE_RAISED[name])
    content = data.draw(spoilt(st.just(right)) if isinstance(right, bytes) else changed(right))
    read_or_refused(read, place, content)


@pytest.mark.parametrize("name", EXPORTS)
def test_an_unchanged_export_is_read(place, name):
    """Else the test above could pass on refusals alone."""
    right, read = EXPORTS[name]
    assert read(place, right)
