"""`method=multitask_prompt` against its formula, its teachers against runs, and PEFT.

Tolerance 1e-5 on states and logits of equal weights.
"""

from dataclasses import replace
from functools import partial

import pytest
import torch
import transformers

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.start import peft as start
from ptrun.testing import read
from ptrun.training.optim import make_optimizer
from tests.exporting.runs import compared, moved, shipped
from tests.readings import reading, reads
from tests.small_runs import sst2, train_batch
from tests.tiers import package

P = 3
EQUAL = {"atol": 1e-5, "rtol": 0}
ONE = ["method=multitask_prompt", f"method.length={P}"]
SEVERAL = [*ONE, "task=pocket_multi", "readout.pooler=none"]
NAMES = ["pocket_ner", "pocket_srl", "pocket_qa", "pocket_topics"]


def several(*overrides):
    """Return a method of four data sets with random vectors, and a batch with a row of each."""
    method, _, _ = read(*SEVERAL, *overrides)
    test = method.task.load("test")
    rows = [next(e for e in test if e.id.startswith(name)) for name in NAMES]
    method, batch, _ = read(*SEVERAL, *overrides, examples=rows)
    with torch.no_grad():
        for tensor in method.prompt.parameters():
            tensor.normal_()
    return method, batch


def test_each_row_has_the_prompt_of_its_task():
    method, batch = several()
    prompt = method.prompt
    for row, vectors in enumerate(method.vectors(batch)):
        expected = prompt.table * torch.outer(prompt.u[row], prompt.v[row])
        torch.testing.assert_close(vectors, expected)
    assert torch.equal(method.inputs(batch).embeddings[:, :P], method.vectors(batch))


def test_it_starts_as_prompt_tuning():
    method, batch, _ = read(*ONE)
    plain, _, _ = read("method=prompt_tuning", f"method.length={P}")
    plain.prompt.begin(method.prompt.table)
    assert torch.equal(plain.inputs(batch).embeddings, method.inputs(batch).embeddings)


def test_one_task_starts_from_the_mean_and_several_from_each():
    method, _ = several()
    exported = method.exported()
    assert method.unfolded(exported) == exported
    target, _, _ = read(*ONE)
    begun = target.unfolded(exported)
    assert torch.equal(begun["prompt.table"], exported["prompt.table"])
    for name in ("prompt.u", "prompt.v"):
        torch.testing.assert_close(begun[name], exported[name].mean(0)[None])


def test_u_and_v_have_a_learning_rate_of_their_own():
    method, _ = several("method.task_lr=0.5")
    train = compose_run([*SEVERAL, "train.lr=0.25"]).train
    groups = make_optimizer(train, method.learned(), method.rates).param_groups
    shares = {id(p): group["share"] for group in groups for p in group["params"]}
    fast = {n for n, p in method.learned().items() if shares[id(p)] * train.lr == 0.5}
    assert fast == {"prompt.u", "prompt.v"}


@torch.no_grad()
def test_training_adds_the_distance_from_the_states_of_prompt_tuning():
    method, batch = several("method.distillation=0.5")
    output = method.backbone.forward(method.inputs(batch))
    loss = method.loss(output, batch)
    teachers = dict(zip(NAMES, torch.randn(4, P, 128), strict=True))
    method.teachers = teachers
    assert method.unprepared(batch.features, training=False) == []
    assert method.unprepared(batch.features, training=True) == [*batch.features]
    method.prepare(batch)
    assert method.unprepared(batch.features, training=True) == []
    assert method.loss(output, batch) == loss, "dev has no teachers"
    apart = []
    for row, vectors in enumerate(teachers.values()):
        plain = PromptTuning(method.backbone, method.task, method.reading, length=P)
        plain.prompt.begin(vectors)
        taught = method.backbone.forward(plain.inputs(batch)).hidden
        states = [batch.by_example(hidden)[row] for hidden in (output.hidden, taught)]
        apart.append((states[0] - states[1]).square())
    training = replace(batch, keys=torch.arange(len(batch)))
    expected = method.readout.loss(output, training)
    expected += 0.5 * torch.cat(apart).mean() * len(batch.targets)
    torch.testing.assert_close(method.loss(output, training), expected)


@pytest.mark.slow
def test_runs_learn_from_teachers_and_start_a_task(tmp_path):
    rows = "source.rows={train: 6, validation: 3, test: 3}"
    steps = ["train.max_steps=3", "train.eval_every=3", "train.batch_size=4"]
    run = partial(ptrun.run, *steps, f"outputs={tmp_path}")
    plain = ["method=prompt_tuning", f"method.length={P}"]
    pooler = {"pocket_topics": ["readout.pooler=none"]}
    taught = [run(*plain, f"task={n}", f"+task.{rows}", *pooler.get(n, [])) for n in NAMES]
    named = [str(done.folder) for done in taught]
    several = [*SEVERAL, *(f"+task.tasks.{n}.{rows}" for n in NAMES)]
    alone, joined = run(*several), run(*several, f"start=joined:{'+'.join(named)}")
    assert not torch.equal(alone.prompt["prompt.table"], joined.prompt["prompt.table"])
    topics = [*ONE, "task=pocket_topics", f"+task.{rows}", *pooler["pocket_topics"]]
    one = run(*topics, f"start=run:{joined.folder}", "train.lr=1e-12")
    for name in ("prompt.u", "prompt.v"):
        mean = joined.prompt[name].mean(0)[None]
        torch.testing.assert_close(one.prompt[name], mean, **EQUAL)
    for runs, reason in (
        (named[1:], "for each of pocket_ner, pocket_srl, "),
        ([*named, named[0]], "and no other"),
        ([one.folder.name, *named[1:]], r"one run of prompt_tuning with method\.length=3 for each"),
    ):
        with pytest.raises(UserError, match=reason):
            run(*several, f"start=joined:{'+'.join(runs)}")
    with pytest.raises(UserError, match="PromptTuning learns no keys and values"):
        run(*plain, "task=pocket_topics", f"start=joined:{'+'.join(named)}")


@pytest.mark.parametrize("key", ["task_lr=0", "distillation=-1"])
def test_wrong_values_are_refused(key):
    with pytest.raises(UserError, match=rf"method\.{key.replace('=', ' .*')}"):
        read(*ONE, f"method.{key}")


FORMS = {
    "gpt2": ("GPT2LMHeadModel", "CAUSAL_LM", "{~sentence} It was {mask}"),
    "t5": ("T5ForConditionalGeneration", "SEQ_2_SEQ_LM", "{~sentence} It was {mask}."),
}


def of_peft(folder, kind, backbone, **options):
    """Write the folder that PEFT writes, random unless it starts from one; return its model."""
    package("peft")
    import peft

    name, task_type, _ = FORMS[kind]
    stock = getattr(transformers, name).from_pretrained(backbone.folder, dtype=torch.float32)
    config = peft.MultitaskPromptTuningConfig(task_type=task_type, num_virtual_tokens=P, **options)
    torch.manual_seed(0)
    model = peft.get_peft_model(stock, config)
    for tensor in model.prompt_encoder["default"].parameters():
        if "prompt_tuning_init" not in options:
            tensor.data.normal_(std=0.5)
    model.save_pretrained(folder)
    return model.eval()


def begun(folder, method):
    adapter = start.read(folder)
    start.check(adapter, type(method), {}, method.backbone)
    start.begin(adapter, method)


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("make", [MultitaskPrompt, PromptTuning])
@torch.no_grad()
def test_logits_equal_pefts(tmp_path, data_dir, kind, make):
    backbone = shipped(f"pocket_{kind}")
    model = of_peft(tmp_path, kind, backbone, num_transformer_submodules=1)
    method = make(backbone, sst2(data_dir, FORMS[kind][2]), reading("verbalizer"), length=P)
    begun(tmp_path, method)
    batch, decoder = train_batch(method), {}
    if kind == "t5":  # PEFT takes labels alone, and shifts them
        decoder = {"labels": torch.cat([batch.decoder[:, 1:], batch.decoder[:, :1]], dim=1)}
    tasks = torch.zeros(len(batch), dtype=torch.long)
    theirs = model(batch.ids, batch.mask.long(), task_ids=tasks, **decoder).logits
    inputs = method.inputs(batch)
    at = inputs.logits_at
    torch.testing.assert_close(
        backbone.forward(inputs).logits, theirs[at.rows, at.columns], **EQUAL
    )


@torch.no_grad()
def test_several_tasks_of_peft_start_as_it_starts_from_them(tmp_path, data_dir):
    """One task from the mean, as AVERAGE_SOURCE_TASKS."""
    backbone = shipped("pocket_gpt2")
    of_peft(tmp_path / "source", "gpt2", backbone, num_tasks=4)
    file = str(tmp_path / "source" / "adapter_model.safetensors")
    begin = {"prompt_tuning_init": "AVERAGE_SOURCE_TASKS"}
    begin["prompt_tuning_init_state_dict_path"] = file
    model = of_peft(tmp_path / "target", "gpt2", backbone, **begin)
    method = MultitaskPrompt(backbone, sst2(data_dir), length=P)
    begun(tmp_path / "source", method)
    prompt = model.get_prompt(1, torch.zeros(1, dtype=torch.long))
    torch.testing.assert_close(method.of(0), prompt[0], **EQUAL)
    with pytest.raises(UserError, match="it has 4 tasks of rank 1"):
        begun(tmp_path / "source", PromptTuning(backbone, sst2(data_dir), length=P))


def test_vectors_of_a_decoder_are_refused(tmp_path, data_dir):
    backbone = shipped("pocket_t5")
    of_peft(tmp_path, "t5", backbone)
    method = MultitaskPrompt(backbone, sst2(data_dir), length=P)
    with pytest.raises(UserError, match="it also has vectors before the decoder's text"):
        begun(tmp_path, method)


@torch.no_grad()
def test_a_higher_rank_of_peft_starts_the_finished_prompt(tmp_path, data_dir):
    backbone = shipped("pocket_gpt2")
    model = of_peft(tmp_path, "gpt2", backbone, num_ranks=2)
    for make in (MultitaskPrompt, PromptTuning):
        method = make(backbone, sst2(data_dir), length=P)
        begun(tmp_path, method)
        prompt = model.get_prompt(1, torch.zeros(1, dtype=torch.long))
        vectors = method.of(0) if make is MultitaskPrompt else method.prompt.vectors()
        torch.testing.assert_close(vectors, prompt[0], **EQUAL)


def test_stock_peft_reads_it_as_prompt_tuning(tmp_path, data_dir):
    backbone, task = shipped("pocket_gpt2"), sst2(data_dir, FORMS["gpt2"][2])
    make = reads(MultitaskPrompt, reading("verbalizer"), length=P)
    method = moved(make, backbone, task)
    form, parity = compared(method, tmp_path / "adapter", task.load("test"))
    assert form.peft_type == "PROMPT_TUNING"
    assert parity.difference < 1e-4 and parity.logits > 0
