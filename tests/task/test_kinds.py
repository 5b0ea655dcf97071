"""Each kind of task reads six rows of its own, scores gold as 100, and names a bad line."""

import json
from pathlib import Path

import pytest

from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.pattern.pattern import read_pvps
from ptrun.task.extraction import Answer
from ptrun.types import Prediction
from tests.composing import task_node
from tests.tiers import tiered

DATA = Path(__file__).parents[1] / "data"
NAMES = sorted(file.stem for file in DATA.glob("*.jsonl"))


def rows_of(name):
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def local(tmp_path):
    """Build a task over rows of our own, in the folder its YAML names."""

    def make(name, rows=None, **changes):
        config = {**task_node(name), **changes}
        folder = tmp_path / config["source"].get("folder", name)
        folder.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(row) + "\n" for row in (rows or rows_of(name)))
        for split in ("train", "validation", "test"):
            (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")
        return build("task", config, str(tmp_path))

    return make


def gold(task, example):
    """Return the right prediction; where several answers are right, the first."""
    if task.kind == "extraction":
        return example.target[0].text if example.target else ""
    if task.kind == "multispan":
        return [answer.text for answer in example.target]
    return example.target[0] if task.kind == "entity_choice" else example.target


@pytest.mark.parametrize("name", tiered(NAMES, lambda name: name in NAMES[::3]))
def test_six_rows_load_and_gold_scores_100(local, name):
    task = local(name)
    examples = task.load("train")
    assert len(examples) == 6 and len({e.id for e in examples}) == 6
    scores = task.score([Prediction(e.id, gold(task, e)) for e in examples], examples)
    assert scores[task.metric] == pytest.approx(100)
    assert {key: pytest.approx(100) for key in scores} == scores
    assert all(field in e.fields for field in task.fields for e in examples)


@pytest.mark.parametrize(
    ("name", "index", "fields", "target"),
    [
        ("rte", 0, {"premise": "Ann met Bob in Oslo."}, "entailment"),
        ("glue_stsb", 5, {"sentence1": "Rome is far."}, 5.0),
        ("copa", 4, {"question": "so"}, 1),
        ("copa", 0, {"question": "because"}, 0),
        ("race_middle", 3, {"question": "Where was the lamp?"}, 3),
        ("c3", 0, {"context": "\n".join(rows_of("c3")[0]["context"])}, 0),
        ("c3", 1, {"options": ["船上", "门边", "水里"]}, 1),
        ("squad", 1, {}, [Answer("a red boat", 30), Answer("red boat", 32)]),
        ("squad_v2", 4, {"question": "Who sold a lamp?"}, []),
        ("quoref", 1, {}, [Answer("Ann", 0), Answer("Bob", 8)]),
        ("multirc", 2, {"question_answer": "What did they buy? A door"}, "wrong"),
        ("record", 2, {"passage": "Ann Lee met Bob in Oslo.\n- Bob sold a boat to Eve."},
         ["Ann Lee", "Bob"]),
        ("wsc", 2, {"marked": "Ann told Bob that *she* was late.", "span1_text": "Ann"}, "same"),
        ("wsc", 3, {"marked": "Eve saw the other boat before *it* sank."}, "same"),
        ("wsc", 5, {"marked": "Ann met Eve when *she,* the guest, arrived."}, "different"),
        ("lama", 3, {"sub_label": "Ann Lee", "template": "[X] was born in [Y] ."}, "Ann"),
        ("srl_up_de", 4, {"predicate": "kam"}, ["O", "O", "O", "B-A1", "B-V", "O"]),
    ],
)  # fmt: skip
def test_a_row_becomes_the_example_of_its_kind(local, name, index, fields, target):
    example = local(name).load("train")[index]
    assert {key: example.fields[key] for key in fields} == fields
    assert example.target == target


@pytest.mark.parametrize(
    ("text", "pronoun", "marked"),
    [
        ('Ann saw him," he said.', "him", 'Ann saw *him* ," he said.'),
        ("Ann saw him go.", "him", "Ann saw *him* go."),
        ('Ann saw "him go.', "him", 'Ann saw *"him* go.'),  # the code accepts no such row
    ],
)
def test_stars_of_the_pronoun_alone_split_its_word_as_p_tunings_code_does(
    local, text, pronoun, marked
):
    row = {"text": text, "span1_text": "Ann", "span1_index": 0, "label": 1, "idx": 0}
    rows = [{**row, "span2_text": pronoun, "span2_index": 2}]
    (example,) = local("wsc", rows, starred="pronoun").load("train")
    assert example.fields["marked"] == marked
    (whole,) = local("wsc", rows).load("train")
    assert whole.fields["marked"] == text.replace(text.split()[2], f"*{text.split()[2]}*")


BAD = [
    ("rte", {"label": 2}, r"label is 2; task rte has entailment \(0\)"),
    ("glue_stsb", {"label": True}, "'label' is True; expected a number from 0 to 5"),
    ("glue_stsb", {"label": float("nan")}, "NaN is not a JSON number"),
    ("copa", {"label": True}, "'label' is True; expected the index of one of 2 options"),
    ("c3", {"context": [1]}, r"'context' is \[1\]; expected text"),
    ("squad", {"answers": {"text": ["Bob"], "answer_start": [3]}}, "answer 'Bob' at character 3"),
    ("squad", {"answers": {"text": [], "answer_start": []}}, "no answer, but task squad needs one"),
    ("record", {"query": "no gap"}, "@placeholder in query"),
    ("wsc", {"span2_index": 1}, "the text does not have 'it' at word 1"),
    ("lama", {"template": "[X] is a town."}, r"must contain \[X\] and \[Y\]"),
    ("srl_up_de", {"srl_tags": ["O"]}, "lists of equal length"),
]
"""Others that are wrong are in `tests/task/malformed.py`."""


@pytest.mark.parametrize(("name", "change", "message"), tiered(BAD, lambda *row: row in BAD[::3]))
def test_a_bad_row_is_named_with_file_and_line(local, name, change, message):
    rows = rows_of(name)
    task = local(name, [rows[1], {**rows[0], **change}])
    with pytest.raises(UserError, match=rf"\.jsonl:2: .*{message}"):
        task.load("train")


def test_copa_joins_its_premise_to_the_answer(local):
    task = local("copa")
    pieces = read_pvps(task.pvps)["ptuning"].render(task.load("train")[0].fields)
    said = " ".join(piece.text or f"<{piece.kind}>" for piece in pieces)
    expected = "the wind blew or the fish swam ? The lamp went out because <soft> <masks> ."
    assert said == expected


def test_hub_spellings_of_a_label_mean_the_same(local):
    row = rows_of("multirc")[0]
    labels = [1, True, "True", "right", 0, False, "False"]
    examples = local("multirc", [{**row, "label": label} for label in labels]).load("train")
    assert [e.target for e in examples] == ["right"] * 4 + ["wrong"] * 3
    copa = {**rows_of("copa")[0], "label": "choice2"}
    assert local("copa", [copa]).load("train")[0].target == 1


def test_answers_of_one_question_are_one_group(local):
    groups = [e.group for e in local("multirc").load("train")]
    assert len(set(groups)) == 3 and len(set(groups[:3])) == 1


def test_more_than_two_fields_are_refused_since_a_model_reads_a_pair(local):
    with pytest.raises(UserError, match=r"fields is .*expected one or two.*task.written"):
        local("multirc", fields=["paragraph", "question", "answer"])


def test_facts_may_keep_to_some_relations_and_the_common_vocabulary(local):
    assert len(local("lama", common_vocabulary=True).load("train")) == 5
    assert {e.group for e in local("lama", relations=["P2"]).load("train")} == {"P2"}


def test_types_that_only_test_has_are_types_of_the_task(local, tmp_path):
    task = local("srl_up_de")
    rows = [row for row in rows_of("srl_up_de") if "B-AM-NEG" not in row["srl_tags"]]
    train = tmp_path / "srl_up_de" / "train.jsonl"
    train.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "B-AM-NEG" in task.labels and task.labels[0] == "O" and len(task.load("train")) == 5


def test_numbered_tags_are_read_by_name(local):
    row = {"tokens": ["Ann", "left", "Oslo"], "tags": [4, 0, 7]}
    assert local("ontonotes5", [row]).load("train")[0].target == ["B-PERSON", "O", "B-GPE"]
    with pytest.raises(UserError, match=r"train.jsonl:1: tag 99 is not a tag of task ontonotes5"):
        local("ontonotes5", [{**row, "tags": [4, 0, 99]}]).load("train")


def test_rows_without_gold_are_left_out_by_rule_and_counted(local, caplog):
    pair = {"sentence1": "灯在门边。", "sentence2": "门边有灯。"}
    rows = [{**pair, "label": label} for label in (0, "-", -1, "contradiction")]
    examples = local("ocnli", rows).load("train")
    assert [e.target for e in examples] == ["entailment", "contradiction"]
    assert "task ocnli: 2 rows of train have no gold label" in caplog.text


@pytest.mark.parametrize(("top", "count"), [(1.0, 60), (1.2, 60), (1.0, 40)])
def test_scores_of_a_file_that_holds_score_by_5_are_restored_with_a_warning(
    local, caplog, top, count
):
    """IDPG's own files hold score / 5. A few small scores may be scores from 0 to 5."""
    pair = {"sentence1": "Ann has a boat.", "sentence2": "Ann owns a boat."}
    rows = [{**pair, "label": top * i / (count - 1)} for i in range(count)]
    targets = [e.target for e in local("glue_stsb", rows).load("dev")]
    divided = top <= 1 and count >= 50
    assert targets == [row["label"] * (5 if divided else 1) for row in rows]
    assert ("none of the 60 numbers of dev is above 1" in caplog.text) == divided
    assert [e.target for e in local("glue_stsb", rows, unit=1).load("dev")][-1] == top


def test_a_unit_that_is_not_above_0_is_refused(local):
    with pytest.raises(UserError, match=r"task.unit is 0; use a number above 0"):
        local("glue_stsb", unit=0)


def test_one_example_has_no_correlation():
    own = build("task", compose_run(["task=pocket_similarity"]).config["task"], None)
    (example,) = own.load("dev")[:1]
    with pytest.raises(UserError, match="give dev and test two examples or more"):
        own.score([Prediction(example.id, 1.0)], [example])
