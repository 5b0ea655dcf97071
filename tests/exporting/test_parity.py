"""Stock PEFT and transformers give the logits of ptrun, for each method on each family."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from ptrun.errors import UserError
from ptrun.exporting import stock_form as stock
from ptrun.exporting.export import Parity, parity
from ptrun.exporting.stock_form import form_of, whole_of
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.lora import LoRA
from ptrun.method.peft import PeftMethod
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from ptrun.method.residual_prompt import ResidualPrompt
from tests.exporting.runs import compared, moved, opinions, shipped
from tests.readings import reading, reads
from tests.small_runs import conll03, sst2
from tests.tiers import tiered

MASKED = ("bert", "roberta", "electra", "albert", "deberta", "deberta-v2")
CAUSAL = ("gpt2", "llama")
FILL = partial(opinions, pattern="{~sentence} It was {mask}")
MEAN = partial(opinions, pattern="{~sentence} It was {masks}")
FIRST = partial(opinions, pattern="{soft:3} {~sentence} It was {mask}")
WORDS = reading("verbalizer")
DORA = {"peft_type": "LORA", "use_dora": True, "r": 4}
TUNERS = {"ia3": {"peft_type": "IA3"}, "dora": DORA, "vera": {"peft_type": "VERA", "r": 16}}
MAPS = {"deberta": ["in_proj"], "gpt2": ["c_attn"]}

PROMPT = partial(PromptTuning, length=4)
PREFIX = partial(PTuningV2, length=4)
LOW = partial(LoRA, rank=3, alpha=6)
EVERY = (*MASKED, *CAUSAL, "t5")
POCKET = ("pocket_gpt2", "pocket_t5")
FILLED = ("bert", "deberta-v2", "pocket_gpt2", "llama", "pocket_t5")


def pooled(make, pooler):
    return reads(make, reading("head", pooler=pooler))


def on(kinds, name, make, data):
    return [(kind, name, make, data) for kind in kinds]


OTHERS = ("roberta", "electra", *CAUSAL, "t5")
TUNED = [
    (kind, f"{name}_tags", partial(PeftMethod, config=TUNERS[name]), conll03)
    for kind, name in [("bert", name) for name in TUNERS]
    + [*zip(OTHERS, [*TUNERS] * 2, strict=False)]
]
POOLERS = ("mean", "none", "trainable")
CELLS = [
    *on(EVERY, "prompt_tags", PROMPT, conll03),
    *on(FILLED, "prompt_words", reads(PROMPT, WORDS), FILL),
    *on(POCKET, "ptuning", PTuning, FIRST),
    ("bert", "residual_tags", partial(ResidualPrompt, length=4, hidden=8), conll03),
    ("pocket_gpt2", "residual_words", reads(ResidualPrompt, WORDS, length=4), FILL),
    *on(("bert", "roberta", "electra", *CAUSAL), "prefix_tags", PREFIX, conll03),
    ("bert", "prefix_label", PREFIX, sst2),
    ("roberta", "prefix_label", pooled(PREFIX, "classifier"), sst2),
    *on(("bert", "pocket_gpt2", "llama"), "prefix_words", reads(PREFIX, WORDS), FILL),
    ("bert", "prefix_mlp", partial(PREFIX, reparameterization="mlp", hidden=8), conll03),
    ("bert", "prefix_hidden", partial(PREFIX, prefix_kind="hidden", shift_positions=True), conll03),
    *on(EVERY, "lora_tags", LOW, conll03),
    *on(FILLED, "lora_words", reads(LOW, WORDS), FILL),
    *[
        ("roberta", f"{name}_words", reads(make, WORDS), MEAN)
        for name, make in (("prompt", PROMPT), ("prefix", PREFIX), ("lora", LOW))
    ],
    ("bert", "lora_label", LOW, sst2),
    ("bert", "lora_label_own_pooler", pooled(LOW, "trainable"), sst2),
    ("albert", "lora_label", pooled(LOW, "trainable"), sst2),
    ("roberta", "lora_label", pooled(LOW, "classifier"), sst2),
    ("roberta", "lora_label_untrained_pooler", pooled(LOW, "frozen"), sst2),
    *TUNED,
    # Heads that no class of transformers has come with load.py.
    *[
        (kind, f"{name}_label_{pooler}", pooled(make, pooler), sst2)
        for place, kind in enumerate(EVERY)
        for turn, pooler in enumerate(POOLERS)
        for name, make in [
            (("lora", LOW), ("prompt", PROMPT), ("prefix", PREFIX))[(place + turn) % 3]
        ]
        if not (kind == "t5" and name != "lora")
        if not (kind in ("albert", "deberta", "deberta-v2") and name == "prefix")
    ],
    ("bert", "prompt_label", PROMPT, sst2),
    ("deberta-v2", "lora_label", LOW, sst2),
    ("gpt2", "ia3_label", partial(PeftMethod, config=TUNERS["ia3"]), sst2),
]
WHOLE = [
    *on(EVERY, "tags", FineTuning, conll03),
    *[
        (kind, f"label_{pooler}", pooled(FineTuning, pooler), sst2)
        for place, kind in enumerate(EVERY)
        for pooler in ("auto", POOLERS[place % 3])
    ],
    *on(("bert", *POCKET), "words", reads(FineTuning, WORDS), FILL),
    *on(EVERY, "lora_tags", LOW, conll03),
    *on(("bert", "pocket_gpt2"), "lora_words", reads(LOW, WORDS), FILL),
    *TUNED,
]


@pytest.mark.parametrize(
    ("kind", "name", "make", "data"),
    tiered(
        [pytest.param(*cell, id=f"{cell[0]}-{cell[1]}") for cell in CELLS],
        lambda kind, *_: kind in ("bert", "gpt2", "t5", "pocket_t5"),
    ),
)
def test_stock_peft_has_the_same_logits(tiny, data_dir, tmp_path, kind, name, make, data):
    task = data(data_dir)
    backbone = shipped(kind) if kind.startswith("pocket") else tiny(kind)
    method = moved(make, backbone, task)
    form, found = compared(method, tmp_path / "adapter", task.load("train"))
    print(f"\nPARITY {kind} {name} {form.peft_type} {found.difference:.1e} {found.largest:.1f}")
    assert found.examples == 6 and found.logits > 0
    assert found.difference <= 1e-4


@pytest.mark.parametrize(
    ("kind", "name", "make", "data"),
    tiered(
        [pytest.param(*cell, id=f"{cell[0]}-{cell[1]}") for cell in WHOLE],
        lambda kind, name, *_: kind in ("bert", "t5") or name == "label_auto",
    ),
)
def test_stock_transformers_has_the_same_logits(tiny, data_dir, tmp_path, kind, name, make, data):
    task = data(data_dir)
    backbone = shipped(kind) if kind.startswith("pocket") else tiny(kind)
    method = moved(make, backbone, task, by=0.3 if "lora" in name else 0.01)
    form = whole_of(method)
    backbone.tokenizer().save_pretrained(tmp_path)
    stock.write_whole(tmp_path, form, method, "")
    found = parity(
        method, stock.load_whole(tmp_path, form, method, "cpu"), form, task.load("train")
    )
    assert found.examples == 6 and found.difference <= 1e-4


def test_other_tensors_give_other_logits(tiny, data_dir, tmp_path):
    """The comparison can fail: an adapter that is not the run's is far off."""
    task = conll03(data_dir)
    method = moved(PREFIX, tiny(), task)
    form, found = compared(method, tmp_path / "adapter", task.load("train"))
    assert found.equal
    model = stock.load(tmp_path / "adapter", form, method, "cpu")
    with torch.no_grad():
        method.prompt.table.add_(0.1)
    off = parity(method, model, form, task.load("train"))
    assert not off.equal and off.difference > 1e-3


def test_large_logits_may_differ_by_more():
    assert Parity(9e-5, 1.0, 1, 1).equal and not Parity(2e-4, 1.0, 1, 1).equal
    assert Parity(9e-4, 100.0, 1, 1).equal and not Parity(2e-3, 100.0, 1, 1).equal


@pytest.mark.parametrize(
    ("kind", "make", "data", "reason"),
    [
        ("bert", PTuning, FIRST, r"vectors before the text only"),
        ("llama", PTuning, FIRST, "after .CLS."),
        (
            "llama",
            PTuning,
            partial(opinions, pattern="{~sentence} {soft} It was {mask}"),
            "before the text",
        ),
    ],
)
def test_rows_that_peft_cannot_place_are_refused(
    tiny, data_dir, tmp_path, kind, make, data, reason
):
    task = data(data_dir)
    method = moved(make, tiny(kind), task)
    with pytest.raises(UserError, match=reason):
        compared(method, tmp_path / "adapter", task.load("train"))


def test_segments_that_peft_drops_are_refused(tiny, data_dir, tmp_path, monkeypatch):
    task = FILL(data_dir)
    method = moved(reads(PROMPT, WORDS), tiny(), task)
    plain = method.encode(task.load("train"))
    pairs = [
        replace(one, rows=[replace(row, types=[0] + [1] * (len(row.ids) - 1)) for row in one.rows])
        for one in plain
    ]
    monkeypatch.setattr(method, "encode", lambda examples: pairs)
    with pytest.raises(UserError, match="drops the second segment"):
        compared(method, tmp_path / "adapter", task.load("train"))


def test_without_dev_examples_there_is_no_parity(tiny, data_dir):
    method = moved(LOW, tiny(), sst2(data_dir))
    with pytest.raises(UserError, match="no dev examples"):
        parity(method, None, form_of(method), [])
