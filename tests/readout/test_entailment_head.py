"""Rows, targets and answers of the entailment read-out; the descriptions of the tasks."""

from types import SimpleNamespace

import pytest
import torch

from ptrun.backbone.base import BackboneOutput
from ptrun.config.build import build
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.readout.base import collate
from ptrun.readout.heads import EntailmentHead, described
from ptrun.runs.plan import plan
from ptrun.types import Example
from tests.composing import task_node
from tests.readings import readout_for
from tests.tiers import tiered

TASKS = ("mpqa", "subj", "cr", "mr", "glue_sst2", "glue_qnli", "glue_rte", "glue_mrpc", "glue_qqp")
TASKS += ("sst2", "sst5", "trec", "ag_news", "pocket_sentiment", "pocket_topics", "pocket_pairs")


def task(labels, descriptions, fields=("text",)):
    own = {"name": "toy", "kind": "classification", "max_tokens": None}
    own |= {"source_language": None, "target_language": None}
    return SimpleNamespace(labels=labels, descriptions=descriptions, fields=fields, **own)


THREE = {"bad": "the film was dull", "fair": "in and of", "good": "the film was bright"}
PAIR = {"yes": "Bob saw: {second}"}


def rows(backbone, toy, example):
    (features,) = EntailmentHead(backbone, toy).encode([example], 60)
    decode = backbone.tokenizer().decode
    return [decode(row.ids) for row in features.rows], features.targets


def test_each_label_has_a_row_and_one_is_entailed(tiny):
    toy = task(list(THREE), THREE)
    texts, targets = rows(tiny(), toy, Example("1", {"text": "Ann saw a film"}, "fair"))
    assert texts == [f"[CLS] Ann saw a film [SEP] {d} [SEP]" for d in THREE.values()]
    assert targets == [0, 1, 0]


def test_a_pair_is_premise_and_hypothesis(tiny):
    toy = task(["yes", "no"], PAIR, ("first", "second"))
    fields = {"first": "Ann met Bob {1}", "second": "Bob met {Ann}"}
    texts, targets = rows(tiny("roberta"), toy, Example("1", fields, "no"))
    assert texts == ["<s>Ann met Bob {1}</s></s>Bob saw: Bob met {Ann}</s>"] and targets == [0]


def decoded(backbone, toy, scores):
    """Return the answer where the head finds these scores, `[rows, 2]`."""
    head = EntailmentHead(backbone, toy)
    example = Example("1", dict.fromkeys(toy.fields, "a film"), toy.labels[0])
    batch = collate(head.encode([example], 60), None, torch.device("cpu"))
    head.scores = lambda output, batch: torch.tensor(scores)
    return head.decode(BackboneOutput(), batch)[0].value


def test_the_likeliest_entailment_is_the_answer(tiny):
    """By probability: the greatest score of `entailed` alone would be another label's."""
    scores = [[1.0, 2.0], [3.0, 3.5], [-3.0, -1.0]]
    odds = torch.tensor(scores).softmax(dim=1)[:, 1]
    assert decoded(tiny(), task(list(THREE), THREE), scores) == list(THREE)[int(odds.argmax())]
    assert int(odds.argmax()) == 2 and int(torch.tensor(scores)[:, 1].argmax()) == 1


@pytest.mark.parametrize(("scores", "answer"), [([[0.0, 0.1]], "yes"), ([[0.1, 0.0]], "no")])
@pytest.mark.parametrize("labels", [["yes", "no"], ["no", "yes"]])
def test_one_description_answers_for_two_labels(tiny, labels, scores, answer):
    assert decoded(tiny(), task(labels, {"yes": "good"}), scores) == answer


@pytest.mark.parametrize(
    ("labels", "descriptions", "message"),
    [
        (["yes", "no"], {}, "has no descriptions of its labels"),
        (["yes", "no"], {"maybe": "so"}, "descriptions has maybe; its labels are yes, no"),
        (["bad", "fair", "good"], {"bad": "dull", "fair": "so"}, "descriptions has bad, fair; its"),
        (["yes", "no"], {"yes": "see {third}"}, "may quote first, second, and must leave one"),
        (["yes", "no"], {"yes": "{first} {second}"}, "must leave one of them out"),
        (["yes", "no"], {"yes": "{"}, "description of yes, '{': "),
        (["yes", "no"], {"yes": "{}"}, "may quote first, second"),
    ],
)
def test_misdescribed_labels_are_refused(labels, descriptions, message):
    with pytest.raises(UserError, match=message):
        described(task(labels, descriptions, ("first", "second")))


@pytest.mark.parametrize("name", tiered(TASKS, lambda name: name in TASKS[::4]))
def test_the_tasks_of_the_paper_are_described(name):
    made = build("task", task_node(name), None, None)
    forms = described(made)
    assert len(forms) == (1 if len(made.labels) == 2 else len(made.labels))
    if len(made.fields) == 2:  # a pair is a premise and a hypothesis already
        assert all("{" in form for form in forms.values())


def test_the_method_tunes_everything_on_entailment(tmp_path):
    planned = plan(compose_run(["method=efl", "task=pocket_pairs", f"outputs={tmp_path}"]))
    names, node = planned.request.names, planned.request.config["method"]
    assert node["_target_"].endswith(".FineTuning")
    assert (names["method"], names["readout"]) == ("efl", "entailment")


def test_a_task_of_numbers_is_refused(tiny):
    made = build("task", compose_run(["task=glue_stsb"]).config["task"], None, None)
    with pytest.raises(UserError, match="cannot answer task=glue_stsb, which is regression"):
        readout_for(tiny(), made, {"readout": "entailment"}, soft=False)
