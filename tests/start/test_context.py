"""`start=context:`: a prefix from all tokens of a text gives the logits of the text in view."""

import json

import pytest
import torch

import ptrun
from ptrun.backbone.base import BackboneInput, Positions
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.runs.plan import plan
from ptrun.start.spec import Start
from ptrun.start.start import WordSource, begin_context
from ptrun.task.setting import shots
from tests import facts
from tests.backbone.test_generation import loaded
from tests.exporting.runs import shipped
from tests.readings import reading
from tests.readout.test_writing import told
from tests.small_runs import engine
from tests.tiers import tiered

CAUSAL = ["pocket_gpt2", "gemma2", "gemma3_text", "gpt_oss", "opt", "phi3", "gpt_neox"]
CAUSAL += ["qwen3_moe", "biogpt", "gpt_bigcode", "llama-yarn", "cohere2", "olmo2", "granite"]
FACT = "Stella Barden often visits Frank Venn on Saturday with all of her old friends."


def prefixed(backbone, length, **keys):
    return PTuningV2(backbone, told(), reading("writing"), length=length, **keys)


def told_by(text, method):
    start = Start("context", text)
    return WordSource(start, method, lambda: [], torch.Generator().manual_seed(0))


def logits(backbone, ids, method=None):
    row = torch.tensor([ids])
    at = Positions(torch.zeros(len(ids), dtype=torch.long), torch.arange(len(ids)))
    given = BackboneInput(ids=row, mask=torch.ones_like(row, dtype=torch.bool), logits_at=at)
    if method is not None:
        (features,) = method.encode(method.task.load("test")[:1])
        batch = engine(backbone)._collate([features])
        inputs = method.inputs(batch)
        given = BackboneInput(
            **{**vars(given), "prefixes": inputs.prefixes, "shift": inputs.shift, "lengths": None}
        )
    with torch.no_grad():
        return backbone.forward(given).logits


@pytest.mark.parametrize("kind", tiered(CAUSAL, lambda kind: kind in ("pocket_gpt2", "gpt_neox")))
def test_all_tokens_of_a_text_are_the_text_in_view(kind, tmp_path):
    backbone = loaded(kind, tmp_path)
    torch.manual_seed(0)
    words = backbone.model.get_input_embeddings().num_embeddings
    size = 6 if backbone.config.get("sliding_window") is None else 2  # windows cut no prefix
    context, own = torch.randint(5, words - 1, (2, size)).tolist()
    method = prefixed(backbone, len(context), dropout=0.0)
    method.begin(context)
    found = logits(backbone, own, method.eval())
    wanted = logits(backbone, context + own)[len(context) :]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["pocket_bert", "pocket_t5", "pocket_electra"])
def test_other_families_start_from_what_they_read(name):
    rows = "+task.source.rows={train: 8, validation: 4, test: 4}"
    topics = facts.task("pocket_topics", None, rows)
    method = PTuningV2(shipped(name), topics, reading("head"), length=4)
    before = method.prompt().detach().clone()
    begin_context(told_by(FACT, method))
    after = method.prompt().detach()
    assert after.shape == before.shape and after.isfinite().all()
    assert all(part.std() > 10 * before.std() for part in after.unbind(1))  # it was N(0, 0.02)


def test_a_text_that_is_too_short_is_refused():
    method = prefixed(shipped("pocket_gpt2"), 40)
    with pytest.raises(UserError, match=r"has 2 tokens, and method\.length=40 needs as many"):
        begin_context(told_by("sun", method))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["method=prompt_tuning"], "learns no keys and values. Type method=ptuning_v2"),
        (["method.reparameterization=mlp"], r"method\.reparameterization=embedding"),
        (["method.prefix_kind=hidden"], r"Type method\.prefix_kind=kv"),
        (["method.shift_positions=false"], r"Leave method\.shift_positions=false out"),
        (["start=context:@none.txt"], "none.txt"),
        (["start=context"], "start=context: no text"),
        (["start=demonstrations:x"], "give a number of examples, such as 8, after the colon"),
        (["start=demonstrations:2", "task=pocket_ner"], "has no labels and no texts as answers"),
        (["start=text:a film"], "Type start=context:a film"),
    ],
)
def test_what_cannot_start_from_a_text_is_refused(typed, said):
    line = ["method=ptuning_v2", "task=pocket_writing", "backbone=pocket_gpt2"]
    with pytest.raises(UserError, match=said):
        plan(compose_run([*line, "start=context:a", *typed]))


def test_the_content_of_a_file_is_in_the_id_and_not_its_place(tmp_path):
    def id_of(start):
        line = ["method=ptuning_v2", "task=pocket_writing", "backbone=pocket_gpt2"]
        return plan(compose_run([*line, f"start={start}"])).run_id

    for name, text in (("a", FACT), ("b", FACT), ("c", FACT + " More.")):
        (tmp_path / name).write_text(text + "\n", encoding="utf-8")
    ids = [id_of(f"context:@{tmp_path / name}") for name in "abc"]
    assert ids[0] == ids[1] != ids[2]
    assert id_of(f'"context:{FACT}"') == ids[0]


def test_a_run_starts_from_a_text(tmp_path):
    (tmp_path / "fact.txt").write_text(FACT, encoding="utf-8")
    line = ["method=ptuning_v2", "method.length=8", "task=pocket_writing", "backbone=pocket_gpt2"]
    line += ["+task.source.rows={train: 16, validation: 4, test: 4}", "train.lr=1e-9"]
    line += ["train.max_steps=2", "readout.max_new_tokens=4", f"outputs={tmp_path}"]
    done = ptrun.run(*line, f"start=context:@{tmp_path / 'fact.txt'}")
    method = prefixed(shipped("pocket_gpt2"), 8)
    begin_context(told_by(FACT, method))
    found = done.prompt["prompt.prefix"]
    torch.testing.assert_close(found, method.prompt().detach(), atol=1e-5, rtol=0)
    assert "fact.txt" not in json.dumps(done.result.config)


@pytest.mark.parametrize("head", [True, False])
def test_demonstrations_are_written_as_those_in_context(head):
    """A head has no pattern, so the task's first one is used."""
    rows = "+task.source.rows={train: 8, validation: 4, test: 4}"
    topics, backbone = facts.task("pocket_topics", None, rows), shipped("pocket_bert")
    read_by = reading("head" if head else "verbalizer")
    train, begun = topics.load("train"), []
    method = PTuningV2(backbone, topics, read_by, length=4)
    method.begin = begun.extend
    draw = torch.Generator().manual_seed(3)
    start = Start("demonstrations", "2")
    begin_context(WordSource(start, method, lambda: [], draw, train))
    readout = ManualPrompt(backbone, topics, reading("verbalizer")).readout
    first, _ = shots(train, 2, 3, "start")
    assert begun == [backbone.tokenizer().cls_token_id, *readout.demonstration(first)[:3]]
