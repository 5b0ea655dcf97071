"""What PEFT cannot hold is refused with the reason, before anything is written."""

from functools import partial

import pytest

from ptrun.errors import UserError
from ptrun.exporting.stock_form import form_of
from ptrun.method.adapter import Adapter
from ptrun.method.dept import DePT
from ptrun.method.dpt import DPT
from ptrun.method.fine_tuning import FineTuning
from ptrun.method.idpg import IDPG
from ptrun.method.lora import LoRA
from ptrun.method.manual_prompt import ManualPrompt
from ptrun.method.prompt_lora import PromptLoRA
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.ptuning_v2 import PTuningV2
from tests.exporting.runs import moved
from tests.readings import reading, reads
from tests.small_runs import conll03, sst2

FILL = partial(sst2, pattern="{~sentence} It was {mask}.")
SOFT = partial(sst2, pattern="{soft} {~sentence} It was {mask}.")
LISTED = partial(sst2, pattern="{~sentence} was {words|commas}.")
PREFIX = partial(PTuningV2, length=3)


@pytest.mark.parametrize(
    ("kind", "make", "data", "reason"),
    [
        ("bert", FineTuning, sst2, "tuned the backbone itself"),
        ("bert", partial(PTuning, tune_backbone=True), SOFT, "tuned the backbone itself"),
        ("bert", reads(ManualPrompt, reading("verbalizer")), FILL, "learned nothing"),
        ("bert", partial(Adapter, hidden=8), sst2, "no adapters between layers"),
        ("bert", partial(IDPG, length=3, hidden=8, order=4), sst2, "depends on the text"),
        ("bert", partial(DePT, length=3, rank=2), sst2, "PEFT has no method like DePT"),
        ("bert", partial(PromptLoRA, length=3), sst2, "PEFT has no method like PromptLoRA"),
        ("electra", DPT, LISTED, "tuned the backbone itself"),
        ("electra", reads(PREFIX, reading("class_words")), LISTED, "ClassWords"),
        ("bert", partial(PromptTuning, length=3, after=1), conll03, "method.after=1"),
        ("bert", partial(PromptTuning, length=3, double_embedding=True), conll03, "double_embed"),
        ("bert", partial(PREFIX, layers=[2, 3]), conll03, "in all layers"),
        ("bert", partial(PREFIX, shift_positions=False), conll03, "shift_positions"),
        ("bert", partial(PTuningV2, length=0), conll03, "learned no prefix"),
        ("albert", PREFIX, conll03, "no past keys and values"),
        ("deberta-v2", PREFIX, conll03, "no past keys and values"),
        ("t5", PREFIX, conll03, "mixes the layers"),
        ("blocklm", LoRA, conll03, "no model of transformers"),
        ("megatron", LoRA, conll03, "no model of transformers"),
        ("t5", partial(PromptTuning, length=3), sst2, "need a read-out of words"),
    ],
)
def test_a_run_that_peft_cannot_express_is_refused(tiny, data_dir, kind, make, data, reason):
    method = moved(make, tiny(kind), data(data_dir))
    with pytest.raises(UserError, match=reason):
        form_of(method)
