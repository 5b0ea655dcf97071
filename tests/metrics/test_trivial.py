"""What predictors that learn nothing score on the real files, beside the figures of the specs."""

import gzip
import json
from collections import Counter

import pytest

from ptrun.config.build import build
from ptrun.metrics import (
    accuracy_and_f1,
    drop_scores,
    entity_scores,
    multirc_scores,
    pearson_and_spearman,
    precision_at_1,
    squad_v2_scores,
)
from ptrun.types import Prediction
from tests.composing import task_node
from tests.metrics import reference

pytestmark = pytest.mark.shared


@pytest.fixture
def rows(shared):
    def read(task, part="validation"):
        with gzip.open(shared / "data" / task / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    return read


@pytest.mark.parametrize(
    ("name", "answer", "figures"),
    [
        ("boolq", "yes", {"accuracy": 62.2}),
        ("cb", "contradiction", {"accuracy": 50.0, "macro_f1": 22.2}),
        ("rte", "entailment", {"accuracy": 52.7}),
        ("wic", "same", {"accuracy": 50.0}),
        ("wsc", "different", {"accuracy": 63.5}),
        ("multirc", "right", {"f1a": 59.9}),
    ],
)
@pytest.mark.slow
def test_one_label_for_all_scores_as_listed_and_gold_100(shared, name, answer, figures):
    task = build("task", task_node(name), str(shared / "data"))
    examples = task.load("dev")
    scores = task.score([Prediction(e.id, answer) for e in examples], examples)
    assert {key: round(scores[key], 1) for key in figures} == figures
    golds = task.score([Prediction(e.id, e.target) for e in examples], examples)
    assert golds == dict.fromkeys(golds, pytest.approx(100))


def test_multirc_all_positive_scores_as_listed_and_all_negative_not_at_all(rows):
    data = rows("superglue/multirc")
    golds = [row["label"] for row in data]
    by_text = [(row["paragraph"], row["question"]) for row in data]
    by_number = [(row["idx"]["paragraph"], row["idx"]["question"]) for row in data]
    assert len(set(by_text)) == len(set(by_number)) == 953
    scores = multirc_scores([1] * len(golds), golds, by_text, positive=1)
    assert scores == multirc_scores([1] * len(golds), golds, by_number, positive=1)
    assert (round(scores["f1a"], 1), round(scores["em"], 2)) == (59.9, 0.84)
    scores = multirc_scores([0] * len(golds), golds, by_text, positive=1)
    assert (scores["f1a"], round(scores["em"], 2)) == (0.0, 0.31)


def test_squad_v2_always_null_scores_the_share_of_the_local_articles(rows):
    golds = [row["answers"]["text"] for row in rows("squad_v2")]
    scores = squad_v2_scores([""] * len(golds), golds)
    assert scores["em"] == scores["f1"] == pytest.approx(100 * 1415 / 2759)
    assert (scores["has_answer_f1"], scores["no_answer_em"]) == (0.0, 100.0)


@pytest.mark.parametrize("part", ["train", "validation"])
@pytest.mark.slow
def test_quoref_gold_scores_100_and_the_first_span_as_the_reference(rows, part):
    golds = [row["answers"]["text"] for row in rows("quoref", part)]
    assert drop_scores(golds, golds) == {"em": 100.0, "f1": 100.0}
    short = [spans for spans in golds if len(spans) < 7]
    guesses = [[*before[:1], *spans[:1]] for before, spans in zip(short[1:], short, strict=False)]
    pairs = list(zip(guesses, short, strict=False))
    scores = drop_scores(guesses, short[:-1])
    em = sum(reference.drop_em(*pair) for pair in pairs) / len(pairs)
    f1 = sum(reference.drop_f1(*pair) for pair in pairs) / len(pairs)
    assert scores == {"em": pytest.approx(100 * em), "f1": pytest.approx(100 * f1)}


def test_mrpc_all_positive_and_stsb_constant(rows):
    golds = [row["label"] for row in rows("glue_mrpc")]
    assert round(accuracy_and_f1([1] * len(golds), golds, positive=1), 1) == 74.8
    golds = [row["label"] for row in rows("glue_stsb")]
    assert pearson_and_spearman([2.5] * len(golds), golds) == 0.0
    assert pearson_and_spearman(golds, golds) == pytest.approx(100.0)


def test_tagging_nothing_scores_0_and_gold_100(rows):
    golds = [row["ner_tags"] for row in rows("conll03")]
    assert entity_scores([["O"] * len(tags) for tags in golds], golds)["f1"] == 0.0
    assert entity_scores(golds, golds)["f1"] == 100.0


def test_the_predicate_alone_scores_in_seqeval_and_not_officially(rows):
    golds = [row["srl_tags"] for row in rows("srl_up_de", "test")]
    guesses = [[tag if tag == "B-V" else "O" for tag in tags] for tags in golds]
    assert round(entity_scores(guesses, golds)["f1"], 1) == 44.3


def test_the_commonest_object_of_each_relation_scores_18_on_lama(rows):
    seen = {}
    for row in rows("lama_trex", "train"):
        seen.setdefault(row["predicate_id"], Counter())[row["obj_label"]] += 1
    data = rows("lama_trex", "test")
    relations = [row["predicate_id"] for row in data]
    guesses = [seen[r].most_common(1)[0][0] if r in seen else "" for r in relations]
    scores = precision_at_1(guesses, [row["obj_label"] for row in data], relations)
    assert len(set(relations)) == 41
    assert round(scores["p_at_1"], 1) == 18.2 and round(scores["p_at_1_facts"], 1) == 19.7
