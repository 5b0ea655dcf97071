"""Forgetting is the loss of the stock model on texts; tokens added are counted by hand."""

import pytest
import torch

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.runs.examples import tokens_added
from ptrun.runs.forgetting import loss_with, loss_without
from ptrun.runs.plan import plan
from ptrun.testing import read
from tests.small_runs import engine

TEXTS = ["the film was good and the plot was bright", "a boat on the lake", "x"]
GPT2 = ("backbone=pocket_gpt2", "readout=verbalizer")


def stock(backbone):
    """Return the mean loss a token of transformers' own pass over each text."""
    total, count = 0.0, 0
    for text in TEXTS:
        ids = backbone.tokenizer()(text, return_tensors="pt").input_ids
        if ids.shape[1] > 1:
            with torch.no_grad():
                loss = backbone.model(input_ids=ids, labels=ids).loss
            total, count = total + float(loss) * (ids.shape[1] - 1), count + ids.shape[1] - 1
    return total / count


def test_texts_of_a_method_stand_before_the_fixed_ones():
    method, _, _ = read("method=in_context", "method.examples=2", *GPT2)
    method.prime(method.task.load("train"))
    before = [token for text in method.readout.texts_before for token in text]
    ids = method.backbone.tokenizer()(TEXTS[0]).input_ids
    with torch.no_grad():
        logits = method.backbone.model(input_ids=torch.tensor([before + ids])).logits[0]
    expected = torch.nn.functional.cross_entropy(logits[len(before) : -1], torch.tensor(ids[1:]))
    after = loss_with(method, TEXTS[:1], engine(method.backbone, budget=256))
    assert after == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("option", ["manual_prompt", "ptuning", "ptuning_v2", "lora"])
def test_without_a_method_it_is_the_loss_of_the_stock_model(option):
    method, _, _ = read(f"method={option}", *GPT2)
    loop, readout = engine(method.backbone, budget=64), method.readout
    before = loss_without(method, TEXTS, loop)
    assert before == pytest.approx(stock(method.backbone), rel=1e-5)
    after = loss_with(method, TEXTS, loop)
    same = option in ("manual_prompt", "lora")  # LoRA starts at zero
    assert (after == before) is same and method.readout is readout


def test_tokens_added_are_vectors_and_the_words_of_the_pattern():
    for option, vectors in (("manual_prompt", 0), ("ptuning_v2", 7), ("prompt_tuning", 7)):
        length = [f"method.length={vectors}"] * bool(vectors)
        method, batch, _ = read(f"method={option}", *GPT2, *length)
        examples = method.task.load("test")[:2]
        tokenizer = method.backbone.tokenizer()
        plain = [
            len(tokenizer(example.fields[method.task.fields[0]]).input_ids) for example in examples
        ]
        written = [len(row.ids) for row in batch.rows]
        mean = sum(w - p for w, p in zip(written, plain, strict=True)) / 2
        assert tokens_added(method, examples, batch.features) == mean + vectors
    method, batch, _ = read("method=fine_tuning")
    assert tokens_added(method, method.task.load("test")[:2], batch.features) == 0


def test_the_texts_are_in_the_id_and_wrong_ones_are_refused(tmp_path):
    file = tmp_path / "texts.txt"
    line = ["task=pocket_sentiment", *GPT2, "method=lora"]
    ids = [plan(compose_run(line)).run_id]
    for text in ("one text\n", "one text\n\n", "another\n"):
        file.write_text(text)
        ids.append(plan(compose_run([*line, f"forgetting={file}"])).run_id)
    assert ids[1] == ids[2] and len({*ids}) == 3
    for text, typed, told in (
        ("\n", line, "it has no text"),
        ("a", ["task=pocket_sentiment", "method=lora"], "does not write left to right"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=told):
            plan(compose_run([*typed, f"forgetting={file}"]))
    file.unlink()
    with pytest.raises(UserError, match="Give a text file"):
        plan(compose_run([*line, f"forgetting={file}"]))
