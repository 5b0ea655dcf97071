"""Every method on every family and kind of task: the promises all methods make."""

from functools import partial

import pytest

from ptrun.method.adapter import Adapter
from ptrun.method.attempt import Attempt
from ptrun.method.dept import DePT
from ptrun.method.dpt import DPT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.idpg import IDPG
from ptrun.method.lora import LoRA
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.method.residual_prompt import ResidualPrompt
from ptrun.types import Example
from tests.method.test_every_kind import keeps_the_promises, learns
from tests.readings import reading, reads
from tests.small_runs import conll03, engine, sst2
from tests.tiers import tiered

METHODS = {
    "adapter": partial(Adapter, hidden=8),
    "adapter_pfeiffer": partial(Adapter, hidden=8, layout="pfeiffer"),
    "attempt": partial(Attempt, length=3),
    "compacter": partial(Adapter, hidden=8, maps="phm"),
    "compacter_shared": partial(Adapter, hidden=8, maps="phm", shared_mixing=True),
    "dept": partial(DePT, length=3, rank=4),
    "fine_tuning": FineTuning,
    "fine_tuning_trainable_pooler": reads(FineTuning, reading("head", pooler="trainable")),
    "fine_tuning_mean": reads(FineTuning, reading("head", pooler="mean")),
    "idpg": partial(IDPG, length=3, hidden=8, order=4),
    "idpg_dense_at_the_end": partial(IDPG, length=3, hidden=8, generator="dense", position=4),
    "lora": partial(LoRA, rank=3),
    "lora_dropout": partial(LoRA, rank=3, dropout=0.3),
    "multitask_prompt": partial(MultitaskPrompt, length=3),
    "peft_dora": partial(PeftMethod, config={"peft_type": "LORA", "use_dora": True, "r": 3}),
    "peft_ia3": partial(PeftMethod, config={"peft_type": "IA3"}),
    "prompt_tuning": partial(PromptTuning, length=3),
    "prompt_tuning_mean": reads(PromptTuning, reading("head", pooler="mean"), length=3),
    "prompt_tuning_rescaled": partial(PromptTuning, length=3, rescale=10.0),
    "prompt_tuning_embedding_twice": partial(PromptTuning, length=3, double_embedding=True),
    "ptuning_v2": partial(PTuningV2, length=3),
    "ptuning_v2_hidden": partial(PTuningV2, length=3, prefix_kind="hidden"),
    "ptuning_v2_mlp": partial(PTuningV2, length=3, reparameterization="mlp", hidden=8),
    "ptuning_v2_unshifted": partial(PTuningV2, length=3, shift_positions=False),
    "ptuning_v2_frozen_pooler": reads(PTuningV2, reading("head", pooler="frozen"), length=3),
}
METHODS |= {
    "prompt_lora": partial(PromptLoRA, length=3, rank=3),
    "residual_prompt": partial(ResidualPrompt, length=3, hidden=8),
    "residual_prompt_separate": partial(ResidualPrompt, length=3, hidden=8, separate=True),
}
TASKS = {"classification": sst2, "tagging": conll03}
ENTAILED = reading("entailment")
ENTAILMENT = {
    "efl": reads(FineTuning, ENTAILED),
    "efl_lora": reads(LoRA, ENTAILED, rank=2),
    "efl_prompt_tuning": reads(PromptTuning, ENTAILED, length=3),
    "efl_ptuning_v2": reads(PTuningV2, ENTAILED, length=3),
}
LISTED = partial(sst2, pattern="{~sentence} was {words|commas}.")
CLASS_WORDS = {
    "dpt": DPT,
    "dpt_bias": reads(DPT, reading("class_words", bias=True, loss="sum", direction="sigma")),
    "ptuning_v2_class_words": reads(PTuningV2, reading("class_words"), length=3),
}


def described(data_dir):
    """Return the task with a description of one label (EFL)."""
    task = sst2(data_dir)
    task.descriptions = {"positive": "the film was good"}
    return task


KINDS = ["bert", "roberta", "electra", "albert", "deberta", "deberta-v2", "gpt2", "llama"]
KINDS += ["megatron", "blocklm", "t5"]

# what 3 steps may leave: unused rows, key biases (softmax ignores them), and the self-attention of
# a decoder that reads one token
UNMOVED = ("position", "token_type", ".key.bias", "k_proj.bias", "decoder.block")
UNMOVED += ("lora.decoder_", "prompt.attention")  # ATTEMPT without source prompts

HOSTED = ("megatron", "blocklm")  # stacks that others have too: one task is enough
BOTH = ("fine_tuning", "ptuning_v2")  # so it is for other methods, but on BERT
# variants of a method: on BERT alone
CORE = ("adapter", "fine_tuning", "lora", "prompt_tuning", "ptuning_v2")
CELLS = [
    pytest.param(kind, make, data, id=f"{kind}-{name}-{task}")
    for kind in KINDS
    for name, make in METHODS.items()
    for task, data in TASKS.items()
    if kind == "bert" or name in CORE
    if task == "classification" or kind == "bert" or (kind not in HOSTED and name in BOTH)
    if task == "classification" or not name.endswith(("_mean", "_pooler"))  # tags: word by word
]
CELLS += [
    pytest.param("electra", make, LISTED, id=f"electra-{name}")
    for name, make in CLASS_WORDS.items()
]
CELLS += [pytest.param("bert", make, described, id=name) for name, make in ENTAILMENT.items()]
CELLS += [
    pytest.param(kind, ENTAILMENT["efl"], described, id=f"efl-{kind}") for kind in ("gpt2", "t5")
]
FIRST = ("bert", "gpt2", "t5", "electra")  # a kind of each family, and dpt's


LEARNED = [METHODS[name] for name in CORE]


def in_core(kind, make, data):
    """Return whether a cell is in the core: BERT's, and the common methods on each family."""
    common = make in [METHODS[name] for name in BOTH]
    return data is sst2 and ((kind == "bert" and make in LEARNED) or (kind in FIRST and common))


@pytest.mark.parametrize(("kind", "make", "data"), tiered(CELLS, in_core))
def test_a_cell_keeps_the_promises_and_learns_all_it_can(tiny, rows, kind, make, data):
    unmoved = keeps_the_promises(make, lambda: tiny(kind), data(rows), steps=4)
    kinds = ("backbone.", "lora.decoder_", "prompt.attention")
    assert all(n.startswith(kinds) for n in unmoved), unmoved
    assert all(any(part in n for part in UNMOVED) for n in unmoved), unmoved


LEARN = [cell for cell in CELLS if cell.values[0] == "bert" and cell.values[2] is not conll03]
LEARN += [
    pytest.param(kind, METHODS[CORE[place % 5]], sst2, id=f"{kind}-{CORE[place % 5]}")
    for place, kind in enumerate(KINDS[1:])
]
LEARN += [pytest.param("bert", METHODS[name], conll03, id=f"tags-{name}") for name in CORE]


@pytest.mark.parametrize(
    ("kind", "make", "data"),
    tiered(LEARN, lambda kind, make, data: kind == "bert" and data is sst2 and make in LEARNED),
)
def test_four_examples_are_learned(tiny, data_dir, kind, make, data):
    """The loss falls by a quarter; a random frozen backbone is what bounds it."""
    task = data(data_dir)
    lr = 3e-3 if make(tiny(kind), task).tunes_backbone else 5e-2
    maps = [METHODS[name] for name in ("lora", "lora_dropout", "adapter")]
    lr = 1e-2 if make in (*maps, ENTAILMENT["efl_lora"]) else lr
    learns(make, lambda: tiny(kind), task, (20, 100, 400), lr, 0.75)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [FineTuning, METHODS["prompt_tuning"], METHODS["ptuning_v2"]])
def test_a_sentence_of_empty_words_is_answered(tiny, data_dir, kind, make):
    backbone, data = tiny(kind), conll03(data_dir)
    method = make(backbone, data)
    empty = Example("e", {"tokens": [" ", ""]}, ["O", "O"])
    fit = engine(backbone)
    fit.place([method])
    features = method.encode([empty])
    assert len(fit.predict([method], [features])[0][0].value) == 2
