"""`method=instruction`: one text before each row, typed, from a file, or proposed."""

import json

import pytest

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.instruction import Instruction, chosen
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.runs.plan import plan
from ptrun.testing import read
from tests.facts import task as task_of
from tests.method.test_in_context import LINES, ROWS
from tests.readings import reading
from tests.small_runs import sst2

SAID = "Say whether it is good ."
LINE = ["method=instruction", ROWS]


def predictor(text):
    """Return the state of a predictor as DSPy 3 writes it."""
    fields = [{"prefix": "Sentence:", "description": "${sentence}"}]
    signature = {"instructions": text, "fields": fields}
    return {"traces": [], "train": [], "demos": [], "signature": signature, "lm": None}


VERSIONS = {"metadata": {"dependency_versions": {"python": "3.11", "dspy": "3.0.4"}}}
GEPA = {
    "candidates": [{"instruction": "worse"}, {"instruction": "best"}, {"instruction": "middle"}],
    "parents": [[None], [0], [0]],
    "val_aggregate_scores": [0.1, 0.9, 0.5],
    "best_idx": 1,
    "validation_schema_version": 2,
}
FILES = {
    "lines.txt": ("one\n\n  two  \nthree\n", ["one", "two", "three"]),
    "predict.json": ({**predictor("one\ntwo"), **VERSIONS}, ["one\ntwo"]),
    "chain.json": ({"predict": predictor("one"), **VERSIONS}, ["one"]),
    "candidate.json": ({"instruction": "use the signature"}, ["use the signature"]),
    "result.json": (GEPA, ["best", "middle", "worse"]),
}
WRONG = {
    "empty.txt": "\n \n",
    "broken.json": "{",
    "list.json": ["one", "two"],
    "parts.json": {"query": "one", "answer": "two"},
    "program.json": {"a": predictor("one"), "b": predictor("two"), **VERSIONS},
    "numbers.json": {"instruction": 3},
    "scores.json": {**GEPA, "val_aggregate_scores": [0.1]},
}


def written(folder, name, content):
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")
    return f"@{folder / name}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_candidates(name, tmp_path):
    content, texts = FILES[name]
    typed = written(tmp_path, name, content)
    assert [chosen(typed, i) for i in range(len(texts))] == texts
    with pytest.raises(UserError, match=rf"candidate is {len(texts)}; use 0 to {len(texts) - 1}"):
        chosen(typed, len(texts))


@pytest.mark.parametrize("name", WRONG)
def test_a_file_of_another_form_is_refused_by_name(name, tmp_path):
    with pytest.raises(UserError, match=rf"{name}: .*Expected an instruction a line"):
        chosen(written(tmp_path, name, WRONG[name]), 0)


@pytest.mark.parametrize("line", LINES.values(), ids=list(LINES))
def test_it_is_before_the_row_of_the_manual_prompt(line):
    method = read(*LINE, f"method.text='{SAID}'", *line)[0]
    bare = read("method=manual_prompt", ROWS, *line)[0]
    method.prime([])
    ((text,), ids) = method.record["texts_before"], method.backbone.tokenizer()
    assert "".join(SAID.split()) in "".join(ids.decode(text).split())
    example = method.task.load("test")[0]
    (row, *_), (plain, *_) = (own.encode([example])[0].rows for own in (method, bare))
    start = len(method.readout.encoder._frames[0].ids[0])
    assert row.ids == plain.ids[:start] + text + plain.ids[start:]
    assert method.learned() == {} and row.decoder == plain.decoder


def test_a_long_row_is_cut_and_the_instruction_is_not(tiny, data_dir):
    task = sst2(data_dir, "{~sentence} film was a good film and the plot was {mask}")
    task.pvps["own"]["pattern"] = task.pvps["own"]["pattern"].replace("good film", "film " * 34)
    own, said = reading("verbalizer"), "the plot was good " * 4
    method = Instruction(tiny("bert"), task, own, text=said)
    bare = ManualPrompt(method.backbone, task, own)
    method.prime([])
    (text,) = method.record["texts_before"]
    whole = 0
    for example in task.load("test"):
        (row,), (plain,) = (m.encode([example])[0].rows for m in (method, bare))
        assert row.ids[1 : 1 + len(text)] == text and len(row.ids) <= 64
        whole += len(row.ids) == len(plain.ids) + len(text)
    assert whole < 6


def test_the_content_of_a_file_is_in_the_id_and_not_its_place(tmp_path):
    def id_of(*typed):
        return plan(compose_run([*LINE, *LINES["masked"], *typed])).run_id

    files = [written(tmp_path, name, f"other\n{SAID}\n") for name in ("a.txt", "b.txt")]
    ids = [id_of(f"method.text={file}", "method.candidate=1") for file in files]
    assert ids[0] == ids[1] == id_of(f"method.text='{SAID}'") != id_of(f"method.text={files[0]}")


@pytest.mark.parametrize("name", ["masked", "texts"])
def test_a_run_needs_its_file_no_more(name, tmp_path):
    typed = written(tmp_path, "a.txt", f"other\n{SAID}\n")
    line = [*LINE, *LINES[name], f"outputs={tmp_path}"]
    done = ptrun.run(*line, f"method.text={typed}", "method.candidate=1")
    (tmp_path / "a.txt").unlink()
    assert done.result.manifest["instruction"] == SAID and not done.prompt
    test = task_of(LINES[name][1].removeprefix("task="), None, ROWS).load("test")
    answers = ptrun.predict([done], [dict(example.fields) for example in test])
    wanted = [row["prediction"] for row in done.predictions]
    assert [answer["prediction"] for answer in answers] == wanted


@pytest.mark.parametrize("name", ["causal", "seq2seq", "infilling", "texts"])
def test_the_backbone_proposes_the_same_text_in_every_run(name, tmp_path):
    line = [*LINE, *LINES[name], f"outputs={tmp_path}"]
    runs = {
        key: ptrun.run(*line, f"method.candidate={key[0]}", f"seed={key[1]}")
        for key in [(0, 1), (1, 1), (1, 2)]
    }
    texts = {key: run.result.manifest["instruction"] for key, run in runs.items()}
    assert texts[1, 1] == texts[1, 2] != texts[0, 1]
    assert all(any(map(str.isalpha, text)) and "\n" not in text for text in texts.values())
    test = task_of(LINES[name][1].removeprefix("task="), None, ROWS).load("test")
    answers = ptrun.predict([runs[1, 1]], [dict(example.fields) for example in test])
    wanted = [row["prediction"] for row in runs[1, 1].predictions]
    assert [answer["prediction"] for answer in answers] == wanted


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["backbone=pocket_bert"], "backbone=pocket_bert writes no instruction; type method.text"),
        (["setting=zero_shot"], "no examples of train to propose one; type method.text"),
        (["method.candidate=-1"], "candidate is -1; use 0 or more"),
        (["method.text=a", "method.candidate=1"], "candidate is 1; use 0 to 0"),
        (["method.text=@none.txt"], "none.txt"),
        (["method.text=3"], "method.text"),
        (["readout=head"], "supports only verbalizer or writing"),
    ],
)
def test_what_has_no_instruction_is_refused(typed, said, tmp_path):
    line = [*LINE, "task=pocket_sentiment", "backbone=pocket_gpt2", f"outputs={tmp_path}"]
    with pytest.raises(UserError, match=said):
        ptrun.run(*line, *typed)
