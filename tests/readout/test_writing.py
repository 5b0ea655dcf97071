"""`readout=writing`: what is learned, what is written, and that stock PEFT writes the same."""

from dataclasses import replace

import pytest
import torch
import transformers

from ptrun.backbone.choosing import Decoding
from ptrun.backbone.generation import generate
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.method.dept import DePT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.backbone.test_generation import asked
from tests.covering import covering
from tests.exporting.runs import moved, shipped
from tests.readings import reading
from tests.small_runs import engine
from tests.tiers import tiered

ROWS = "+task.source.rows={train: 12, validation: 6, test: 6}"
METHODS = {
    "manual_prompt": (ManualPrompt, {}),
    "fine_tuning": (FineTuning, {}),
    "prompt_tuning": (PromptTuning, {"length": 4}),
    "ptuning": (PTuning, {"encoder": "plain"}),
    "ptuning_v2": (PTuningV2, {"length": 4}),
    "lora": (LoRA, {"rank": 2, "alpha": 8}),
    "dept": (DePT, {"length": 4, "rank": 2}),
}
FAMILIES = ("pocket_gpt2", "pocket_t5", "pocket_glm")


def told(*overrides):
    """Return the task of facts and sentences, with a few rows."""
    own = compose_run(["task=pocket_writing", ROWS, *overrides])
    return own.components()["task"].build(None, None)


def made(name, backbone, task=None, **keys):
    """Return a method with random learned tensors that writes."""
    kind, options = METHODS[name]
    own = reading("writing", **{"max_new_tokens": 16, **keys})
    return moved(lambda *given: kind(*given, own, **options), backbone, task or told(), by=0.1)


def texts(method, examples):
    (found,) = engine(method.backbone).predict([method], [method.encode(examples)])
    return [one.value for one in found]


@pytest.mark.parametrize("loss_on", ["answer", "all"])
def test_the_loss_of_a_causal_model_is_transformers_own(loss_on):
    backbone, task = shipped("pocket_gpt2"), told()
    method = made("manual_prompt", backbone, task, loss_on=loss_on)
    stock = transformers.AutoModelForCausalLM.from_pretrained(backbone.folder, dtype=torch.float32)
    for features in method.encode(task.load("train")):
        batch = engine(backbone)._collate([features])
        with torch.no_grad():
            own = method.loss(backbone.forward(method.inputs(batch)), batch)
        ids = [*features.rows[0].ids, features.targets[-1]]
        assert ids[-1] == backbone.tokenizer().eos_token_id
        first = 0 if loss_on == "all" else features.facts["prompt"]
        labels = [-100] * first + ids[first:]
        with torch.no_grad():
            wanted = stock(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
        torch.testing.assert_close(own / len(features.targets), wanted, rtol=1e-5, atol=1e-5)


def test_the_loss_of_an_encoder_decoder_is_transformers_own():
    backbone, task = shipped("pocket_t5"), told()
    method = made("manual_prompt", backbone, task)
    stock = transformers.AutoModelForSeq2SeqLM.from_pretrained(backbone.folder, dtype=torch.float32)
    (features,) = method.encode(task.load("train")[:1])
    batch = engine(backbone)._collate([features])
    with torch.no_grad():
        own = method.loss(backbone.forward(method.inputs(batch)), batch)
        labels = torch.tensor([features.targets])
        wanted = stock(input_ids=torch.tensor([features.rows[0].ids]), labels=labels).loss
    torch.testing.assert_close(own / len(features.targets), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_does_not_decide_what_is_read(family):
    method, task = made("prompt_tuning", shipped(family)), told()
    examples = task.load("test")
    poisoned = [replace(e, target=["something else entirely"]) for e in examples]
    unknown = [replace(e, target=[]) for e in examples]
    rows = [[method.readout.prompt(f).rows for f in method.encode(own)]
            for own in (examples, poisoned, unknown)]  # fmt: skip
    assert rows[0] == rows[1] == rows[2]
    assert texts(method, examples) == texts(method, poisoned) == texts(method, unknown)


def test_a_long_answer_is_cut_and_said_so():
    backbone, task = shipped("pocket_gpt2"), told()
    (short,) = made("manual_prompt", backbone, task, max_new_tokens=3).encode(
        task.load("train")[:1]
    )
    (whole,) = made("manual_prompt", backbone, task, max_new_tokens=60).encode(
        task.load("train")[:1]
    )
    end = backbone.tokenizer().eos_token_id
    assert len(short.targets) == 3 and short.facts["cut"] and end not in short.targets
    assert whole.targets[:3] == short.targets and whole.targets[-1] == end
    assert not whole.facts["cut"]


CELLS = [(FAMILIES[place % 3], name) for place, name in enumerate(METHODS)]
CELLS += [(family, name) for family in FAMILIES for name in ("ptuning_v2", "prompt_tuning")]
CELLS += [("pocket_gpt2", "dept")]


@pytest.mark.parametrize(
    ("family", "name"),
    tiered(sorted({*CELLS}), lambda *cell: cell == ("pocket_gpt2", "ptuning_v2")),
)
def test_every_method_writes_alone_as_in_a_batch(family, name):
    method, task = made(name, shipped(family)), told()
    examples = task.load("test")
    together = texts(method, examples)
    assert [texts(method, [one])[0] for one in examples] == together


SHARED = covering(FAMILIES, ("ptuning_v2", "prompt_tuning", "lora"), (1, 2))


@pytest.mark.parametrize(
    ("family", "name", "beams"), tiered(SHARED, lambda *cell: cell == SHARED[0])
)
def test_runs_that_share_passes_write_what_they_write_alone(family, name, beams):
    backbone, task = shipped(family), told()
    methods = [made(name, backbone, task, beams=beams) for _ in range(2)]
    with torch.no_grad():
        for tensor in list(methods[1].learned().values())[::2]:
            tensor.mul_(-3)
    features = [method.encode(task.load("test")) for method in methods]
    both = engine(backbone).predict(methods, features)
    for method, own in zip(methods, both, strict=True):
        assert [one.value for one in own] == texts(method, task.load("test"))
    assert [one.value for one in both[0]] != [one.value for one in both[1]]


def test_a_stop_text_ends_an_answer_and_is_not_in_it():
    backbone, task = shipped("pocket_gpt2"), told()
    usual = texts(made("manual_prompt", backbone, task), task.load("test"))
    stop = next(word for text in usual for word in text.split()[1:2])
    method = made("manual_prompt", backbone, task, stop=[stop])
    cut = texts(method, task.load("test"))
    assert cut == [text.partition(stop)[0].strip() for text in usual]
    assert method.readout.text([]) == ("", False)


def test_length_penalty_prefers_longer_beams():
    backbone = shipped("pocket_gpt2")
    given, period = asked(backbone, prefix=False), backbone.tokenizer().convert_tokens_to_ids(".")
    sizes = [
        sum(map(len, generate(backbone, given, Decoding(max_new_tokens=20, beams=6,
            length_penalty=penalty, ends=(period,)))))
        for penalty in (-5.0, 5.0)
    ]  # fmt: skip
    assert sizes[0] < sizes[1]


@pytest.mark.parametrize(
    ("overrides", "told_"),
    [
        (["backbone=pocket_bert"], "writes no texts; use a causal model"),
        (["backbone=pocket_gpt2", "readout.beams=0"], "readout.beams is 0; use 1 or more"),
        (["backbone=pocket_gpt2", "readout.top_k=5"], "readout.top_k=5 changes nothing"),
        (["backbone=pocket_t5", "readout.loss_on=all"], "readout.loss_on=all changes nothing"),
        (
            ["backbone=pocket_gpt2", "readout.beams=2", "readout.temperature=1"],
            "samples, readout.beams does not",
        ),
        (["backbone=pocket_gpt2", "readout=head"], "readout=head cannot answer"),
        (["backbone=pocket_gpt2", "readout.top_p=2"], "top_p is 2; use more than 0 and at most 1"),
        (["backbone=pocket_gpt2", "readout.repetition_penalty=0"], "_penalty is 0; use more than"),
        (["backbone=pocket_gpt2", "readout.date=2027-01-01"], "readout.date=.* changes nothing"),
    ],
)
def test_what_cannot_be_is_refused(overrides, told_):
    from ptrun.runs.plan import plan

    with pytest.raises(UserError, match=told_):
        plan(compose_run(["task=pocket_writing", "method=prompt_tuning", *overrides]))


def test_runs_that_decode_in_other_ways_write_what_they_write_alone():
    backbone, task = shipped("pocket_gpt2"), told()
    examples = task.load("test")
    methods = [
        made("lora", backbone, task, **keys)
        for keys in ({"max_new_tokens": 6}, {"beams": 2}, {"temperature": 1.0}, {})
    ]
    rows = [method.encode(examples) for method in methods]
    together = engine(backbone).predict(methods, rows)
    alone = [texts(method, examples) for method in methods]
    assert [[one.value for one in own] for own in together] == alone
    assert len({tuple(own) for own in alone}) == 4
