"""The files for the servers of GLUE and SuperGLUE, line by line."""

import json
import logging
from pathlib import Path

import pytest

from ptrun.config.paths import options
from ptrun.errors import UserError
from ptrun.papers.submission import OFFICIAL, Submission
from ptrun.predicting.rows import Question
from ptrun.types import Example
from tests.readout.reading import task


def answered(rows, answers):
    questions = [Question(n, Example(str(n), {}, None), n, row) for n, row in enumerate(rows, 1)]
    return [(q, {"id": q.id, "prediction": a}) for q, a in zip(questions, answers, strict=True)]


def written(name, rows, answers, labels=(), file="test.jsonl"):
    form = Submission(name, labels, Path(file))
    return form.name, [*form.lines(answered(rows, answers)), *form.end()]


INDEXED = [{"idx": 5}, {"idx": 6}]
QNLI = ["entailment", "not_entailment"]
GLUE = {
    "glue_cola": (["acceptable", "unacceptable"], "CoLA.tsv", ["5\t1", "6\t0"]),
    "glue_stsb": ([2.34567, -0.2], "STS-B.tsv", ["5\t2.346", "6\t0.000"]),
    "glue_qnli": (QNLI, "QNLI.tsv", [f"{i}\t{label}" for i, label in enumerate(QNLI, 5)]),
}
SUPERGLUE = {
    "boolq": (["yes", "no"], "BoolQ.jsonl", ["true", "false"]),
    "cb": (["neutral", "entailment"], "CB.jsonl", ["neutral", "entailment"]),
    "copa": ([1, 0], "COPA.jsonl", [1, 0]),
    "wic": (["same", "different"], "WiC.jsonl", ["true", "false"]),
    "wsc": (["same", "different"], "WSC.jsonl", ["True", "False"]),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue_takes_a_table_of_index_and_prediction(name):
    answers, file, lines = GLUE[name]
    assert written(name, INDEXED, answers) == (file, ["index\tprediction", *lines])
    as_text = [{"index": "5"}, {"index": "6"}]  # as a TSV has it
    assert written(name, as_text, answers)[1][1:] == lines


@pytest.mark.parametrize("name", SUPERGLUE)
def test_superglue_takes_json_lines_of_idx_and_label(name):
    answers, file, labels = SUPERGLUE[name]
    found, lines = written(name, INDEXED, answers)
    pairs = zip((5, 6), labels, strict=True)
    assert found == file
    assert [json.loads(line) for line in lines] == [{"idx": i, "label": own} for i, own in pairs]


def test_multirc_is_gathered_by_passage_and_question():
    places = [(0, 3, 1), (0, 3, 2), (0, 4, 3), (1, 5, 4)]
    rows = [{"idx": dict(zip(("paragraph", "question", "answer"), p, strict=True))} for p in places]
    _, lines = written("multirc", rows, ["right", "wrong", "wrong", "right"])
    first, second = map(json.loads, lines)
    asked = [{"idx": 3, "answers": [{"idx": 1, "label": 1}, {"idx": 2, "label": 0}]}]
    asked += [{"idx": 4, "answers": [{"idx": 3, "label": 0}]}]
    assert first == {"idx": 0, "passage": {"questions": asked}}
    assert second["idx"] == 1 and second["passage"]["questions"][0]["idx"] == 5


def test_record_is_named_by_its_query():
    rows = [{"idx": {"passage": 0, "query": 9}}]
    _, (line,) = written("record", rows, ["Ann Lee"])
    assert json.loads(line) == {"idx": 9, "label": "Ann Lee"}


def test_mismatched_mnli_is_known_by_the_name_of_its_file():
    names = {file: written("glue_mnli", [{}], ["neutral"], file=file)[0] for file in ("a", "b")}
    assert set(names.values()) == {"MNLI-m.tsv"}
    mismatched = written("glue_mnli", [{}], ["neutral"], file="test_mismatched.jsonl")
    assert mismatched == ("MNLI-mm.tsv", ["index\tprediction", "0\tneutral"])


@pytest.mark.parametrize("name", sorted(OFFICIAL))
def test_every_label_of_a_task_has_a_form(name):
    assert name in options("task")
    labels = task(name, None).labels
    if forms := OFFICIAL[name][2]:
        assert set(labels) == set(forms)


def test_words_of_no_label_and_missing_rows_are_told(caplog):
    logging.getLogger("ptrun").propagate = True
    _, lines = written("boolq", INDEXED, ["maybe", "yes"], labels=["no", "yes"])
    assert [json.loads(line)["label"] for line in lines] == ["false", "true"]
    assert "2 rows; the hidden test of boolq has 3245" in caplog.messages[0]
    assert "for 1 rows the model wrote a word of no label" in caplog.messages[1]


WRONG = {
    "another task": ("squad", [{}], r"task=squad has no leaderboard file\. Tasks with one: glue_"),
    "twice": ("cb", [{"idx": 1}, {"idx": 1}], r"row 2: the index 1 appears twice"),
    "no number": ("cb", [{"idx": "x"}], r"row 1: idx is 'x'; expected a whole number"),
    "flat": ("multirc", [{"idx": 1}], r"row 1: idx is 1; MultiRC needs an object"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_no_server_takes_is_refused(case):
    name, rows, message = WRONG[case]
    answers = ["right" if name == "multirc" else "neutral"] * len(rows)
    with pytest.raises(UserError, match=message):
        written(name, rows, answers)
