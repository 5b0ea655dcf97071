"""The learned parameters of methods on published backbones are the papers', to the number."""

import pytest
import torch

from ptrun.config.compose import compose_run
from tests.readings import method_of

DEEP = "method=ptuning_v2 method.length=100"
T5 = "backbone=t5_base_lm_adapt method=ptuning_v2 method.length=10"  # 12 layers, 12 heads of 64
LAMA = "method=ptuning task=lama"
FEW = "backbone=albert_xxlarge_v2 method=ptuning method.hidden=full"
PROMPT = {
    # P-tuning v2: by formula, and the released scripts
    f"backbone=bert_base_cased {DEEP}": 1_843_200,
    f"backbone=bert_base_cased {DEEP} method.reparameterization=mlp": 9_926_144,
    f"backbone=bert_large_cased {DEEP}": 4_915_200,
    f"backbone=bert_large_cased {DEEP} method.reparameterization=mlp": 25_842_176,
    f"backbone=roberta_large {DEEP}": 4_915_200,
    f"backbone=deberta_xlarge {DEEP}": 9_830_400,
    f"backbone=deberta_xlarge {DEEP} method.reparameterization=mlp": 51_057_152,
    "backbone=bert_large_cased method=prompt_tuning method.length=100": 102_400,
    T5: 10 * 2 * 24 * 768,
    f"{T5} method.stacks=[encoder]": 10 * 2 * 12 * 768,
    f"{T5} method.stacks=[cross]": 10 * 2 * 12 * 768,
    f"{T5} method.stacks=[encoder,decoder,cross]": 10 * 2 * 36 * 768,
    f"{T5} method.stacks=[decoder,cross] method.layers=[9,12]": 10 * 2 * 8 * 768,
    f"{T5} task=conll03": 10 * 2 * 12 * 768,  # tags are read in the encoder
    "backbone=t5_v1_1_xxl method=ppt readout=head task=pocket_pairs": 409_600,  # PPT
    # P-tuning: LAMA, and few-shot, where ALBERT's word embeddings are narrow
    f"backbone=bert_base_cased {LAMA}": 8_278_272,
    f"backbone=bert_large_cased {LAMA}": 14_707_712,
    f"backbone=gpt2_medium {LAMA}": 14_704_640,
    f"backbone=gpt2_xl {LAMA}": 35_878_400,
    f"{FEW} task=rte": 708_992,
    f"{FEW} task=wsc": 709_120,
    f"{FEW} task=boolq method.encoder=mlp": 33_152,
    # LoRA: Hu et al. 2022, Table 2 has 0.3 M and 0.8 M; GPT-2's q, k and v are one map, ALBERT's
    # layers are one, and T5's decoder layers attend twice
    "backbone=roberta_base method=lora": 24 * 8 * 2 * 768,
    "backbone=roberta_large method=lora": 48 * 8 * 2 * 1024,
    "backbone=gpt2_medium method=lora": 24 * 8 * 4 * 1024,
    "backbone=albert_xxlarge_v2 method=lora": 2 * 8 * 2 * 4096,
    "backbone=t5_v1_1_base method=lora": (24 + 48) * 8 * 2 * 768,
    # adapters of other forms than IDPG's
    "backbone=roberta_large method=adapter method.layout=pfeiffer": 811_392,
    "backbone=roberta_large method=compacter method.shared_mixing=true": 152_832 - 47 * 4**3,
}


@pytest.mark.parametrize("typed", PROMPT)
def test_a_prompt_has_as_many_parameters_as_the_papers(typed):
    composed = compose_run(["task=sst2", *typed.split()] if "task=" not in typed else typed.split())
    with torch.device("meta"):
        method = method_of(composed)
        counts = method.learned_parameters()
    assert counts["prompt"] == PROMPT[typed] and counts["backbone"] == 0
    if "ptuning_v2" in typed:
        assert counts["head"] == len(method.task.labels) * (method.backbone.shape.hidden_size + 1)
