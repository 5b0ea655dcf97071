"""`method=cpt`: its tokens, its projection and its loss, against plain torch and PEFT.

Tolerance 1e-5 on vectors and logits of equal weights.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers
from torch.nn import functional

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.cpt import CPT
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.readout.base import collate
from ptrun.runs.plan import plan
from ptrun.start import peft as start
from ptrun.testing import read
from tests.exporting.runs import compared, shipped
from tests.readings import reading
from tests.small_runs import sst2
from tests.tiers import package

EQUAL = {"atol": 1e-5, "rtol": 0}
ONE = ["method=cpt", "readout=verbalizer", "backbone=pocket_gpt2"]
IDS, TYPES = [7, 8, 9, 10, 11, 12, 13, 14], [1, 2, 3, 4, 5, 6, 7, 8]
KINDS = ["literal", "field", "literal", "answer"] * 2


def begun(*overrides):
    method, batch, _ = read(*ONE, *overrides)
    method.begin(IDS, KINDS)
    return method, batch


@pytest.mark.parametrize("task", ["pocket_sentiment", "pocket_writing"])
def test_tokens_are_of_a_text_of_the_pattern_or_of_an_answer(task):
    readout = "writing" if task == "pocket_writing" else "verbalizer"
    method, _, _ = read("method=cpt", f"task={task}", f"readout={readout}", *ONE[2:])
    example, decode = method.task.load("train")[0], method.backbone.tokenizer().decode
    ids, kinds = method.readout.demonstration(example), method.kinds(example)
    parts = {
        kind: decode([i for i, k in zip(ids, kinds, strict=True) if k == kind]) for kind in {*kinds}
    }
    if task == "pocket_sentiment":
        assert parts["field"].strip() == example.fields["sentence"]
        assert parts["literal"] == " It was\n\n" and parts["answer"] in (" good", " bad")
    else:
        assert parts["answer"].strip() == example.target[0] and parts["literal"] == "\n\n"


@torch.no_grad()
def test_vectors_stay_in_their_balls():
    method, _ = begun("method.epsilon=0.4", "method.format_epsilon=0.2")
    base, scale = method.backbone.embed(torch.tensor(IDS)), (128 / 2048) ** 0.5
    assert torch.equal(method.prompt.vectors(), base)
    moved = torch.randn(8, 128)
    moved[0] *= 1e-4
    method.prompt.table.copy_(moved)
    apart = method.prompt.vectors() - base
    torch.testing.assert_close(apart[0], moved[0], **EQUAL)  # within its ball
    for place, radius in ((1, 0.4), (2, 0.2), (3, 0.0), (4, 0.2), (5, 0.4), (7, 0.0)):
        expected = moved[place] * radius * scale / moved[place].norm()
        torch.testing.assert_close(apart[place], expected, **EQUAL)


@torch.no_grad()
def test_training_adds_the_loss_of_the_answers_in_the_prompt():
    method, batch = begun("method.decay=0.5")
    training = replace(batch, keys=torch.arange(len(batch)))
    keyed = replace(method.inputs(training), keys=None)  # no dropout, to compare
    found = method.loss(method.backbone.forward(keyed), training)
    output = method.backbone.forward(method.inputs(batch))
    alone = transformers.GPT2LMHeadModel.from_pretrained(
        method.backbone.folder, dtype=torch.float32
    )
    losses = functional.cross_entropy(
        alone(torch.tensor([IDS])).logits[0, :-1], torch.tensor(IDS[1:]), reduction="none"
    )
    shown = 0.25 * losses[2] + 0.5 * losses[6]  # of the tokens at 3 and 7
    expected = method.loss(output, batch) + len(batch) * shown
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_what_is_saved_is_the_finished_prompt():
    method, batch = begun()
    other, _, _ = read(*ONE)
    other.load_exported(method.exported())
    assert torch.equal(other.inputs(batch).embeddings, method.inputs(batch).embeddings)


def test_stock_peft_reads_it_as_prompt_tuning(tmp_path, data_dir):
    backbone, task = shipped("pocket_gpt2"), sst2(data_dir, "{~sentence} It was {mask}")
    method = CPT(backbone, task, reading("verbalizer"), epsilon=9.0)
    method.begin(IDS, KINDS)
    method.prompt.table.data.normal_()
    form, parity = compared(method, tmp_path / "adapter", task.load("test"))
    assert form.peft_type == "PROMPT_TUNING" and form.length == len(IDS)
    assert parity.difference < 1e-4 and parity.logits > 0


def of_peft(folder, backbone, **options):
    """Write the folder that PEFT writes, with random moves; return its model."""
    package("peft")
    import peft

    torch.manual_seed(0)
    config = peft.CPTConfig(
        task_type="CAUSAL_LM", cpt_token_ids=IDS, cpt_tokens_type_mask=TYPES, **options
    )
    model = transformers.GPT2LMHeadModel.from_pretrained(backbone.folder, dtype=torch.float32)
    model = peft.get_peft_model(model, config)
    moved = model.prompt_encoder["default"].delta_embedding.weight
    moved.data.normal_()
    moved.data[3::4] = 0.0  # PEFT gives answers no gradient
    model.save_pretrained(folder)
    return model.eval()


def starts(folder, method):
    adapter = start.read(folder)
    start.check(adapter, type(method), {}, method.backbone)
    start.begin(adapter, method)


@pytest.mark.parametrize("make", [CPT, partial(PromptTuning, length=len(IDS))])
@torch.no_grad()
def test_logits_equal_pefts(tmp_path, data_dir, make):
    backbone = shipped("pocket_gpt2")
    model = of_peft(tmp_path, backbone)
    task = sst2(data_dir, "{~sentence} It was {mask}")
    method = make(backbone, task, reading("verbalizer"))
    starts(tmp_path, method)
    features = method.encode(task.load("train"))
    batch = collate(features, None, torch.device("cpu"))
    theirs = model(batch.ids, batch.mask.long()).logits
    inputs = method.inputs(batch)
    at = inputs.logits_at
    found = backbone.forward(inputs).logits
    torch.testing.assert_close(found, theirs[at.rows, at.columns], **EQUAL)


@torch.no_grad()
def test_the_loss_is_pefts_up_to_its_mean(tmp_path, data_dir):
    """PEFT averages over the answers of all rows, and ours is their sum."""
    backbone = shipped("pocket_gpt2")
    decays = {"opt_weighted_loss_type": "decay", "opt_loss_decay_factor": 0.5}
    model = of_peft(tmp_path, backbone, **decays)
    task = sst2(data_dir, "{~sentence} It was {mask}")
    method = CPT(backbone, task, reading("verbalizer", among="vocabulary"), decay=0.5)
    starts(tmp_path, method)
    (row,) = method.encode(task.load("train")[:1])
    batch = collate([row], torch.zeros(1, dtype=torch.long), torch.device("cpu"))
    output = backbone.forward(replace(method.inputs(batch), keys=None))
    ids = torch.cat([batch.ids, batch.targets[None]], dim=1)
    types = torch.full_like(ids, 2)
    types[0, -1] = 4
    theirs = model(ids, torch.ones_like(ids), labels=ids.clone(), input_type_mask=types).loss
    torch.testing.assert_close(method.loss(output, batch), theirs * 3, atol=1e-4, rtol=1e-5)


def test_a_folder_with_wider_balls_names_them(tmp_path, data_dir):
    backbone = shipped("pocket_gpt2")
    of_peft(tmp_path, backbone, opt_projection_epsilon=0.5)
    method = CPT(backbone, sst2(data_dir, "{~sentence} It was {mask}"), reading("verbalizer"))
    with pytest.raises(UserError, match=r"type method\.epsilon=0\.5 method\.format_epsilon=0\.1"):
        starts(tmp_path, method)


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (["method.epsilon=-1"], "use 0 or more"),
        (["method.decay=-1"], "use 0 or more"),
        (["backbone=pocket_bert"], "CPT needs a left-to-right model"),
    ],
)
def test_wrong_values_are_refused(typed, reason):
    with pytest.raises(UserError, match=reason):
        plan(compose_run([*ONE, "task=pocket_sentiment", *typed])).build_method()


def test_demonstrations_without_room_are_refused():
    method, _, _ = read(*ONE)
    count = method.backbone.shape.positions - 7
    with pytest.raises(UserError, match=f"{count} tokens of demonstrations fill the"):
        method.begin([7] * count, ["field"] * count)


@pytest.mark.slow
def test_a_run_starts_from_demonstrations_and_stays_near_them(tmp_path):
    rows = "+task.source.rows={train: 8, validation: 4, test: 3}"
    line = [*ONE, "task=pocket_sentiment", rows, "train.max_steps=3", "train.eval_every=3"]
    run = partial(ptrun.run, *line, "train.batch_size=4", f"outputs={tmp_path}")
    still, moved = run("method.epsilon=0", "method.format_epsilon=0"), run("train.lr=0.1")
    before, after = (done.prompt["prompt.table"] for done in (still, moved))
    distances = (after - before).norm(dim=1)
    assert 0 < distances.max() <= 0.1 * (128 / 2048) ** 0.5 + 1e-5
    assert moved.predict([{"sentence": "The film was good."}])
    other = run("start=demonstrations:2")
    assert len(other.prompt["prompt.table"]) < len(after)
