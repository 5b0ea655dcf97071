"""Documents with questions, from files of the shapes that LongHealth, QASPER and SQuAD have."""

import json

import pytest

from ptrun.command.import_ import main
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.plan import plan

WORDS = ["one", "two", "three", "four", "five"]
OPTIONS = {f"answer_{c}": text for c, text in zip("abcde", WORDS, strict=True)}
LONGHEALTH = {
    "patient_01": {
        "name": "Anna Sample",
        "texts": {"text_10": "Third.", "text_0": "First letter.", "text_2": "Second."},
        "questions": [{"No": 0, "question": "How many?", "correct": "two", **OPTIONS}],
    },
    "patient_02": {
        "texts": {"text_0": "Another."},
        "questions": [{"No": 1, "question": "Which?", "correct": "five", **OPTIONS}],
    },
}
EMPTY = {"unanswerable": False, "extractive_spans": [], "yes_no": None, "free_form_answer": ""}


GIVEN = [{"extractive_spans": ["this", "that"]}, {"free_form_answer": "this and that"}]
GIVEN += [{"yes_no": False}, {"unanswerable": True}]
WHAT = {"question": "What?", "question_id": "a"}
WHAT["answers"] = [{"answer": {**EMPTY, **answer}} for answer in GIVEN]
FULL = [{"section_name": "Method", "paragraphs": ["We do.", "", "It works."]}]
FULL += [{"section_name": None, "paragraphs": ["End."]}]
ARTICLE = {"title": "A title", "abstract": "An abstract.", "full_text": FULL}
ARTICLE["qas"] = [WHAT, {"question": "None?", "question_id": "b", "answers": []}]
QASPER = {"1": ARTICLE, "2": {"title": "Nothing asked", "abstract": "", "full_text": [], "qas": []}}
OIL = [{"id": "1", "question": "What is dear?", "answers": [{"text": "Oil"}] * 2}]
OIL += [{"id": "2", "question": "Who?", "answers": [], "is_impossible": True}]
PARAGRAPHS = [{"context": "Oil is dear.", "qas": OIL}, {"context": "Gas is not.", "qas": []}]
SQUAD = {"version": "v2.0", "data": [{"title": "Oil", "paragraphs": PARAGRAPHS}]}


def imported(kind, content, folder):
    file = folder / "published.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    main(["data", kind, str(file), "--out", str(folder / "out")])
    found = sorted((folder / "out" / kind).iterdir())
    texts = [(one / "document.txt").read_text() for one in found]
    rows = [(one / "questions.jsonl").read_text().splitlines() for one in found]
    return texts, [[json.loads(line) for line in own] for own in rows]


def test_longhealth_has_letters_in_order_and_options(tmp_path):
    texts, rows = imported("longhealth", LONGHEALTH, tmp_path)
    assert texts == ["First letter.\n\nSecond.\n\nThird.\n", "Another.\n"]
    assert rows[0][0]["answer"] == ["two"] and rows[1][0]["answer"] == ["five"]
    assert rows[0][0]["question"] == "How many?\none\ntwo\nthree\nfour\nfive"


def test_qasper_has_its_answers_as_its_scorer_compares_them(tmp_path):
    texts, rows = imported("qasper", QASPER, tmp_path)
    assert texts == ["A title\n\nAn abstract.\n\nMethod\n\nWe do.\n\nIt works.\n\nEnd.\n"]
    wanted = ["this, that", "this and that", "No", "Unanswerable"]
    assert rows == [[{"id": "a", "question": "What?", "answer": wanted}]]


def test_squad_s_articles(tmp_path):
    texts, rows = imported("squad_articles", SQUAD, tmp_path)
    assert texts == ["Oil is dear.\n\nGas is not.\n"]
    assert rows == [[{"id": "1", "question": "What is dear?", "answer": ["Oil"]}]]


def test_a_run_reads_what_was_written(tmp_path):
    imported("longhealth", LONGHEALTH, tmp_path)
    own = tmp_path / "out" / "longhealth" / "0001"
    line = ["method=cartridge", "backbone=pocket_gpt2", f"readout.document=@{own}/document.txt"]
    line += ["task=csv", f"task.train={own}/questions.jsonl", "task.text=question"]
    planned = plan(compose_run([*line, "task.answer=answer", "method.length=4"]))
    (example,) = planned.task.load("train")
    assert example.target == ["two"] and example.fields["question"].startswith("How many?")


WRONG = {"No": 1, "question": "a", "correct": "x", **OPTIONS}
REFUSED = [
    ("longhealth", {}, "no documents in it"),
    ("longhealth", {"p": {"texts": {}}}, "questions"),
    ("longhealth", {"p": {"texts": {}, "questions": [WRONG]}}, "'correct' is 'x'; expected one of"),
    ("qasper", {"p": {"title": "a"}}, "abstract"),
    ("squad_articles", {"data": 3}, "expected objects"),
]


@pytest.mark.parametrize(("kind", "content", "said"), REFUSED)
def test_another_file_is_refused_and_nothing_is_written(kind, content, said, tmp_path):
    with pytest.raises(UserError, match=said):
        imported(kind, content, tmp_path)
    assert not (tmp_path / "out" / kind).exists()
