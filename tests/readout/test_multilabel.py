"""Several labels a row: the loss, and thresholds from dev."""

import json

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.exporting.stock_form import reader_of
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.multilabel import LabelsHead, LabelsWords
from ptrun.types import Prediction
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.small_runs import engine

ROWS = "+task.source.rows={train: 12, validation: 6, test: 6}"
KINDS = ("pocket_bert", "pocket_gpt2", "pocket_t5")


def topics(*overrides):
    """Return the task of two topics, with a few rows."""
    own = compose_run(["task=pocket_two_topics", ROWS, *overrides])
    return own.components()["task"].build(None, None)


def outputs(method, examples):
    batch = engine(method.backbone)._collate(method.encode(examples))
    with torch.no_grad():
        return method.backbone.forward(method.inputs(batch)), batch


def golds(task, examples):
    return torch.tensor([[float(x in e.target) for x in task.labels] for e in examples])


def test_the_loss_is_weighted_binary_cross_entropy():
    task = topics()
    method = FineTuning(shipped("pocket_bert"), task, reading("head", class_weights="balanced"))
    assert isinstance(method.readout, LabelsHead)
    examples = task.load("train")
    method.readout.weigh(examples)
    output, batch = outputs(method, examples)
    targets = golds(task, examples)
    has = targets.sum(dim=0)
    balanced = torch.where(has > 0, (len(targets) - has) / has.clamp(min=1), 1.0)
    logits, entropy = (
        method.readout.logits(output, batch),
        functional.binary_cross_entropy_with_logits,
    )
    wanted = entropy(logits, targets, pos_weight=balanced, reduction="sum")
    torch.testing.assert_close(method.loss(output, batch), wanted)
    assert len(batch.targets) == targets.numel()  # the engine divides by it


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_compared_with_those_of_no_label(kind):
    task, backbone = topics(), shipped(kind)
    method = ManualPrompt(backbone, task, reading("verbalizer"))
    assert isinstance(method.readout, LabelsWords)
    examples = task.load("test")
    output, batch = outputs(method, examples)
    words = task.pvps[method.readout.pvp.name]["words"]
    spelled = {k: method.readout.encoder.spelling.answer(own[0])[0] for k, own in words.items()}
    scores = output.logits.float()
    wanted = [scores[:, spelled[x]] - scores[:, spelled["none"]] for x in task.labels]
    found = method.readout.logits(output, batch)
    torch.testing.assert_close(found, torch.stack(wanted, dim=1))
    (answers,) = engine(backbone).predict([method], [method.encode(examples)])
    shares = [[one.probabilities[x] for x in task.labels] for one in answers]
    torch.testing.assert_close(torch.tensor(shares), found.sigmoid(), atol=1e-5, rtol=0)


def test_words_need_the_name_of_no_label():
    task = topics("task.labels=[work,none]")
    with pytest.raises(UserError, match="has a label 'none', which label words need"):
        reading("verbalizer").check(shipped("pocket_bert"), task, soft=False)


def answered(shares):
    labels = topics().labels
    every = [dict.fromkeys(labels, 0.01) | own for own in shares]
    return [Prediction(f"{i}", [], probabilities=own) for i, own in enumerate(every)]


@pytest.mark.parametrize(
    ("thresholds", "found"), [("one", [0.35] * 2), ("each", [0.7, 0.35]), ("half", [0.5, 0.5])]
)
def test_thresholds_are_chosen_on_dev(thresholds, found):
    task = topics()
    own = reading("head", thresholds=thresholds)
    readout = FineTuning(shipped("pocket_bert"), task, own).readout
    golds = [["work"], ["work", "family"], ["family"], []]
    dev = [e for e, _ in zip(task.load("test"), golds, strict=False)]
    dev = [type(e)(e.id, e.fields, gold) for e, gold in zip(dev, golds, strict=True)]
    chances = ((0.9, 0.3), (0.8, 0.6), (0.6, 0.4), (0.2, 0.2))
    shares = [{"work": work, "family": family} for work, family in chances]
    decided = readout.settle(answered(shares), dev)
    chosen = [0.5] * len(task.labels) if readout.chosen is None else readout.chosen.tolist()
    assert chosen[:2] == pytest.approx(found)
    for one, own in zip(decided, shares, strict=True):
        wanted = [x for x, limit in zip(("work", "family"), found, strict=True) if own[x] > limit]
        assert one.value == wanted
    assert bool(readout.settled()) == (thresholds != "half")


@pytest.mark.parametrize("readout", ["head", "verbalizer"])
def test_an_export_is_refused_with_the_reason(readout):
    method = FineTuning(shipped("pocket_bert"), topics(), reading(readout))
    with pytest.raises(UserError, match="several labels, by thresholds"):
        reader_of(method)


def test_a_run_is_scored_and_predicts_by_the_thresholds_of_its_dev(tmp_path):
    line = ["task=pocket_two_topics", "method=lora", "train.max_steps=12", "train.lr=1e-2"]
    line += ["+task.source.rows={train: 64, validation: 24, test: 24}", f"outputs={tmp_path}"]
    done = ptrun.run(*line, "train.eval_every=6", "readout.thresholds=each")
    folder = done.folder
    saved = load_file(folder / "prompt.safetensors")["readout.thresholds"]
    assert saved.shape == (8,) and not torch.allclose(saved, torch.tensor(0.5))
    told = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    rows = [{"text": e.fields["text"]} for e in topics(ROWS.replace("6", "24")).load("test")]
    answers = done.predict(rows, probabilities=True)
    assert [one["prediction"] for one in answers] == [one["prediction"] for one in told]
    limits = dict(zip(topics().labels, saved.tolist(), strict=True))
    for one in answers:
        above = [label for label, share in one["probabilities"].items() if share > limits[label]]
        assert one["prediction"] == above
    assert any(len(one["prediction"]) > 1 for one in answers)
    names = {"micro_f1", "macro_f1", "subset_accuracy", "average_precision"}
    assert set(done.result.metrics["test"]) == names
    assert set(done.result.by_label["scores"]) <= set(topics().labels)
