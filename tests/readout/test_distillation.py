"""`readout=distillation`: the teacher is the backbone with the document in view."""

import json
import logging
from itertools import pairwise

import pytest
import torch
import transformers
from torch.nn import functional

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.cartridge import Cartridge
from ptrun.method.lora import LoRA
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.readout.distillation import Distillation
from ptrun.readout.document import SEEDS, Document, turns
from ptrun.runs.plan import plan
from tests.exporting.runs import moved, shipped
from tests.readings import reading
from tests.readout.test_writing import told
from tests.small_runs import engine

FACT = "Stella Barden often visits Frank Venn on Saturday with all of her old friends."
LONG = " ".join([FACT] * 12)
LINE = ["method=cartridge", "method.length=8", "task=pocket_writing", "backbone=pocket_gpt2"]
LINE += ["+task.source.rows={train: 16, validation: 6, test: 6}", "train.batch_size=4"]
LINE += ["train.max_steps=4", "readout.max_new_tokens=24", f"readout.document={FACT}"]


def made(kind=ManualPrompt, backbone=None, document=FACT, **options):
    """Return a method that learns from the document, with random learned tensors."""
    options = {"loss_on": "answer", **options}
    keys = {k: options.pop(k) for k in ("kept_tokens", "loss_on", "self_study") if k in options}
    own = reading("distillation", document=document, max_new_tokens=24, **keys)
    return moved(
        lambda *given: kind(*given, own, **options), backbone or shipped("pocket_gpt2"), told()
    )


def taught(method, part="test"):
    """Return the examples of a part, and the teacher's tokens and log-probabilities of each."""
    features = method.encode(method.task.load(part))
    engine(method.backbone)._prepare([method], [features])
    return features, [method.backbone.kept[method.readout._key(f)] for f in features]


def divergences(method, part="test"):
    """Return KL(teacher || student) of each example, summed over its learned tokens."""
    features = method.encode(method.task.load(part))
    found, _ = engine(method.backbone).evaluate([method], [features], losses=True, texts=[False])
    return [p.figures["loss"] for p in found[0]]


@pytest.mark.parametrize("loss_on", ["answer", "all"])
def test_the_teacher_is_transformers_own_model_with_the_document_before_the_row(loss_on):
    method = made(loss_on=loss_on)
    backbone = method.backbone
    stock = transformers.AutoModelForCausalLM.from_pretrained(backbone.folder, dtype=torch.float32)
    context = backbone.tokenizer()(FACT).input_ids
    for features, own in zip(*taught(method), strict=True):
        (row,) = features.rows
        with torch.no_grad():
            logits = stock(torch.tensor([context + row.ids])).logits[0]
        read = logits[[len(context) + place for place in row.reads]].log_softmax(-1)
        torch.testing.assert_close(read.gather(1, own[0].long()), own[1], atol=2e-5, rtol=0)
        assert own[0].long()[:, 0].tolist() == read.argmax(1).tolist()


def test_the_loss_is_the_divergence_of_the_vocabulary_and_of_fewer_tokens_at_most_that():
    backbone = shipped("pocket_gpt2")
    words = backbone.model.get_input_embeddings().num_embeddings
    every, few = (made(LoRA, backbone, rank=2, alpha=8, kept_tokens=k) for k in (words, 5))
    features, teachers = taught(every)
    whole = []
    for f, own in zip(features, teachers, strict=True):
        batch = engine(backbone)._collate([f])
        with torch.no_grad():
            output = backbone.forward(every.inputs(batch))
        student = output.logits.float().log_softmax(-1)
        teacher = torch.empty_like(student).scatter_(1, own[0].long(), own[1])
        closed = functional.kl_div(student, teacher, log_target=True, reduction="sum")
        torch.testing.assert_close(every.loss(output, batch), closed, atol=1e-4, rtol=1e-4)
        whole.append(float(closed))
    assert all(0 <= a <= b + 1e-5 for a, b in zip(divergences(few), whole, strict=True))


def test_all_tokens_of_the_document_have_no_divergence():
    same = made(Cartridge, length=None, frozen_vectors=None, dropout=0.0)
    same.begin(same.readout.document.ids)
    assert max(map(abs, divergences(same))) < 1e-4
    assert not same.learned()
    assert min(divergences(made())) > 0.01


def test_a_method_that_adds_to_maps_has_the_frozen_teacher():
    plain, added = (taught(made(*own, **more))[1] for own, more in [((), {}), ((LoRA,), LORA)])
    assert all(map(torch.equal, plain, added))


LORA = {"rank": 2, "alpha": 8}


def test_training_approaches_the_teacher_and_keeps_the_sink(tmp_path):
    done = ptrun.run(*LINE, "train.max_steps=30", "train.lr=0.02", f"outputs={tmp_path}")
    alike = ptrun.run(*LINE, "method.frozen_vectors=null", f"outputs={tmp_path}")
    assert done.metrics["test"]["kl"] < 0.9 * alike.metrics["test"]["kl"]
    assert alike.result.learned_parameters["total"] == 0
    prefix, start = done.prompt["prompt.prefix"], alike.prompt["prompt.prefix"]
    assert torch.equal(prefix[0], start[0]) and not torch.equal(prefix[1], start[1])
    assert done.result.learned_parameters["prompt"] == prefix[1:].numel()


def test_the_teacher_is_asked_once(tmp_path, monkeypatch):
    first = ptrun.run(*LINE, f"outputs={tmp_path}")

    def never(*_):
        raise AssertionError("the teacher is known")

    monkeypatch.setattr(Distillation, "prepare", never)
    again = ptrun.run(*LINE, "rerun=true", f"outputs={tmp_path}")
    assert again.metrics == first.metrics
    ptrun.run(*LINE, "train.lr=0.1", "seed=2", f"outputs={tmp_path}")


def test_predictions_need_no_document(tmp_path):
    (tmp_path / "fact.txt").write_text(FACT, encoding="utf-8")
    typed = f"readout.document=@{tmp_path / 'fact.txt'}"
    done = ptrun.run(*LINE[:-1], typed, f"outputs={tmp_path}")
    assert "fact.txt" not in json.dumps(done.result.config)
    assert done.result.run_id == plan(compose_run([*LINE, f"outputs={tmp_path}"])).run_id
    (tmp_path / "fact.txt").unlink()
    rows = [dict(e.fields) for e in told().load("test")]
    wanted = [row["prediction"] for row in done.predictions]
    assert [row["prediction"] for row in done.predict(rows)] == wanted


# Self-study.


def test_parts_and_kinds_take_turns():
    document = Document(shipped("pocket_gpt2"), LONG)
    parts = document.parts(50)
    assert parts[0][0] == 0 and parts[-1][1] == len(document.ids)
    assert all(a[1] == b[0] for a, b in pairwise(parts))
    assert max(end - start for start, end in parts) <= 50
    own = turns(document, 5 * len(parts), 50)
    assert {*own} == {(kind, part) for kind in SEEDS for part in parts}


def test_the_backbone_asks_and_answers(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    typed = [*LINE, "readout.self_study=12", "readout.chunk=20", f"outputs={tmp_path}"]
    done = ptrun.run(*typed)
    lines = (done.folder / "study.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert 0 < len(rows) <= 12 and f"{len(rows)} questions with answers" in caplog.text
    assert {row["fields"]["kind"] for row in rows} <= {*SEEDS}
    assert all(row["fields"]["facts"] and row["target"][0] for row in rows)
    manifest = done.result.manifest
    assert manifest["data"]["train"]["count"] == len(rows)
    assert manifest["data"]["origin"]["train"] == "self-study"

    def never(*_):
        raise AssertionError("the questions are known")

    monkeypatch.setattr(Distillation, "_studied", never)
    other = ptrun.run(*typed, "seed=2", "train.lr=0.1")
    assert (other.folder / "study.jsonl").read_text().splitlines() == lines


def test_a_long_document_has_a_teacher_for_its_parts_alone():
    backbone = shipped("pocket_gpt2")
    method = made(backbone=backbone, document=LONG * 3, self_study=4)
    readout = method.readout
    features, teachers = taught(method)
    assert all(float(own[1].exp().sum(1).max()) == 1.0 for own in teachers)
    plain = moved(
        lambda *own: ManualPrompt(*own, reading("writing", max_new_tokens=24)), backbone, told()
    )
    found, _ = engine(backbone).evaluate([plain], [features], losses=True, texts=[False])
    wanted = [p.figures["loss"] for p in found[0]]
    torch.testing.assert_close(divergences(method), wanted, atol=1e-4, rtol=1e-4)
    part = readout._question(0, "Where is it?", "detail", (3, 40))
    assert readout._span(method.encode([part])[0]) == (3, 40)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["readout.document=null"], "needs a document"),
        (["readout.document=@none.txt"], "none.txt"),
        (["readout.document='  '"], "no text"),
        (["readout.kept_tokens=0"], r"readout\.kept_tokens is 0; use 1 or more"),
        (["backbone=pocket_t5"], "needs a left-to-right model"),
        (["task=pocket_sentiment"], "readout=distillation cannot answer"),
        (["method=fine_tuning"], "FineTuning changes it"),
        (["method=ia3"], "PeftMethod changes it"),
        (["method=ptuning"], "this method supports only verbalizer or writing"),
        (["method=lora", "backbone=pocket_t5"], "needs a model that reads left to right"),
        (["method=lora", "readout.document=null"], "needs a document"),
    ],
)
def test_what_cannot_be_distilled_is_refused(typed, said):
    line = LINE if "method" not in typed[0] else [*LINE[2:], "readout=distillation"]
    with pytest.raises(UserError, match=said):
        plan(compose_run([*line, *typed]))
