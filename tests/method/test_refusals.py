"""What a method cannot do is refused by name, with what is allowed, before anything is learned."""

from functools import partial

import pytest

from ptrun.errors import UserError
from ptrun.method.adapter import Adapter
from ptrun.method.base import check_pair
from ptrun.method.idpg import IDPG
from ptrun.method.lora import LoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.readings import reading, reads
from tests.small_runs import conll03, sst2

ADAPTER, IDPG_8 = partial(Adapter, hidden=8), partial(IDPG, hidden=8, order=4)
PREFIX, TWICE = partial(PTuningV2, length=2), partial(PromptTuning, length=5, double_embedding=True)
POOLED = reads(PTuningV2, reading("head", pooler="frozen"), length=3)
SHARE = "use 0 or more, and less than 1"
REFUSED = [
    ("bert", ADAPTER, {"hidden": 0}, "method.hidden is 0; use 1 or more"),
    ("bert", ADAPTER, {"dropout": 1.0}, f"method.dropout is 1.0; {SHARE}"),
    ("bert", ADAPTER, {"maps": "phm", "order": 3}, "order is 3, but a map from 32 to 8 needs a di"),
    ("bert", IDPG_8, {"length": -1}, "method.length is -1; use 0"),
    ("bert", IDPG_8, {"length": 60}, "method.length is 60, but tiny_bert.* has 64 positions"),
    ("bert", IDPG_8, {"position": 5}, "method.position is 5; use 0, 1, 2, 3 or 4"),
    ("bert", IDPG_8, {"dropout": 1.0}, f"method.dropout is 1.0; {SHARE}"),
    ("bert", IDPG_8, {"order": 3}, "method.order is 3, but a map from 32 to 8 needs a divisor"),
    ("bert", IDPG_8, {"hidden": -1}, "method.hidden is -1; use 1 or more"),
    ("bert", LoRA, {"rank": 0}, "method.rank is 0; use 1 or more"),
    ("bert", LoRA, {"alpha": 0}, "method.alpha is 0; use more than 0"),
    ("bert", LoRA, {"dropout": 1.0}, f"method.dropout is 1.0; {SHARE}"),
    ("deberta-v2", LoRA, {"dropout": 0.1}, "on a deberta-v2 backbone use 0"),
    ("bert", LoRA, {"targets": ["q_proj"]}, "has q_proj, but tiny_bert.* allowed: query, key"),
    ("gpt2", LoRA, {"targets": ["lm_head"]}, "has lm_head, but tiny_gpt2.*: c_attn, c_proj"),
    ("bert", PREFIX, {"stacks": ["encoder"]}, r"tiny_bert\d* \(masked\) has one stack"),
    ("gpt2", PREFIX, {"stacks": ["decoder"]}, r"tiny_gpt2\d* \(causal\) has one stack"),
    ("t5", PREFIX, {"stacks": []}, "name one or more of encoder, decoder, cross"),
    ("t5", PREFIX, {"stacks": ["cross", "cross"]}, "name one or more"),
    ("t5", PREFIX, {"stacks": ["encoder", "decoder"]}, "name one or more of encoder, which"),
    ("t5", PREFIX, {"layers": [1, 3]}, "first <= last <= 2, the layers of the decoder"),
    ("bert", PREFIX, {"length": 60}, "60, but tiny_bert.* has 64 positions; use method.length=56"),
    ("bert", PREFIX, {"length": -1}, "method.length is -1"),
    ("bert", PREFIX, {"layers": [2, 4]}, r"method.layers is \[2, 4\]; give \[first,last\]"),
    ("bert", PREFIX, {"layers": [3, 2]}, "1 <= first <= last <= 3"),
    ("bert", PREFIX, {"dropout": 1.0}, "method.dropout is 1.0"),
    ("bert", PromptTuning, {"length": 2, "rescale": 0.0}, "method.rescale is 0.0; use more than 0"),
    *((kind, TWICE, {}, f"double_embedding=true: tiny_{kind}.* is {kind}; use")
      for kind in ("deberta", "deberta-v2", "gpt2", "t5")),
    *((kind, POOLED, {}, "has no pooler; use readout")
      for kind in ("gpt2", "llama", "megatron", "blocklm", "t5")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "make", "keys", "message"), REFUSED)
def test_what_cannot_be_is_refused_by_name(tiny, rows, kind, make, keys, message):
    task = conll03 if keys.get("stacks") == ["encoder", "decoder"] else sst2  # tags: no decoder
    with pytest.raises(UserError, match=message):
        make(tiny(kind), task(rows), **keys)


@pytest.mark.parametrize("kind", ["gpt2", "t5"])
def test_a_method_of_encoders_is_refused_elsewhere(tiny, rows, kind):
    with pytest.raises(UserError, match="IDPG needs an encoder, but"):
        check_pair(IDPG, "auto", {}, tiny(kind), sst2(rows))
