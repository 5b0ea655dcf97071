"""Cells, composed, beside the authors' released scripts, line by line.

The values are those of the scripts and of the defaults of their code: P-tuning v2 run_script/*.sh;
P-tuning PT-Fewshot/scripts; DPT's text classification script and Quoref's config.json; IDPG's
bash scripts; PPT's scripts/ and configs.
"""

import pytest
from omegaconf import OmegaConf

from ptrun.config.compose import compose_run
from ptrun.config.identity import flat
from ptrun.papers.experiment import load
from tests.tiers import tiered

ADAMW = "train.optimizer=adamw train.eps=1e-8 train.clip=1.0"
V2 = f"{ADAMW} train.weight_decay=0 train.warmup=0 train.eval_every=null hardware.precision=fp32"
T5 = "backbone.dropout=0 backbone.layer_norm_eps=1e-2"
PPT = f"""{ADAMW} {T5} train.batch_size=16 train.epochs=50 train.schedule=constant train.warmup=0
    train.weight_decay=0.01 train.eval_every=6 hardware.precision=fp16 hardware.fp16_scaling=true
    method.length=100"""
FT = f"{T5} hardware.fp16_scaling=true train.weight_decay=0.01"
LAST = f"{T5} pretraining.train.select=last pretraining.train.max_steps"
IDPG = """train.optimizer=adamw train.betas=[0.9,0.98] train.eps=1e-6 train.weight_decay=0.1
    train.decay_vectors=true train.schedule=constant train.warmup=0 train.clip=null
    readout.dropout=0 hardware.precision=fp16 method.length=5"""
SCRIPTS = {
    "ptuning_v2/table2 bert-large PT-2 BoolQ": f"""{V2} backbone.hub=google-bert/bert-large-cased
        train.lr=5e-3 train.batch_size=32 train.epochs=100 train.schedule=linear method.length=40
        method.dropout=null method.reparameterization=embedding task.max_tokens=128""",
    "ptuning_v2/table2 roberta-large PT-2 RTE": f"""{V2} backbone.hub=FacebookAI/roberta-large
        train.lr=5e-3 train.batch_size=32 train.epochs=100 train.schedule=linear method.length=128
        method.dropout=null""",
    "ptuning_v2/table3 roberta-large PT-2 CoNLL03": f"""{V2} train.schedule=exponential
        train.decay=0.95 train.batch_size=16""",
    "ptuning_v2/table3 bert-large PT-2 CoNLL04": """backbone.dropout=0.2 method.dropout=null
        train.lr=2e-2 method.length=128 train.batch_size=32 train.epochs=40""",
    "ptuning_v2/table3 roberta-large PT-2 CoNLL04": "backbone.dropout=null",
    "ptuning_v2/table3 roberta-large PT-2 SQuAD1.1": """backbone.dropout=0.2 train.lr=5e-3
        method.length=16 train.epochs=30""",
    "ptuning_v2/table3 roberta-large PT-2 SQuAD2.0": """backbone.dropout=0.2 method.length=8
        train.epochs=10""",
    "dpt/table1 electra-large DPT SST-2": f"""{ADAMW} train.lr=2e-5 train.epochs=10
        train.batch_size=8 train.weight_decay=0 train.schedule=linear train.warmup=0""",
    "dpt/table2 electra-large DPT QUOREF": """train.lr=5e-6 train.betas=[0.9,0.999] train.eps=1e-6
        train.weight_decay=0.01 train.schedule=constant train.batch_size=12""",
    "idpg/table1 roberta-large S-IDPG-PHM MPQA": f"""{IDPG} train.batch_size=16
        train.max_steps=26894""",
    "idpg/table1 roberta-large M-IDPG-PHM SST-2": f"""{IDPG} train.batch_size=32
        train.max_steps=21047""",
    # 256 tokens, of which special ones take two twice.
    "ptuning/table5 albert-xxlarge-v2 P-tuning BoolQ": f"""{ADAMW} train.lr=1e-4
        train.backbone_lr=1e-5 train.backbone_weight_decay=0.1 train.weight_decay=0
        train.max_steps=250 train.batch_size=16 train.eval_every=20 train.patience=10
        train.warmup=0 train.schedule=linear task.max_tokens=254 hardware.precision=fp32""",
    "ppt/table4_en t5-v1_1-xxl PPT BoolQ": f"{PPT} train.lr=5e-2 {LAST}=8000",
    "ppt/table4_en t5-v1_1-xxl PPT RACE-m": f"{LAST}=6000",
    "ppt/table4_en t5-v1_1-xxl Unified PPT RTE": f"{LAST}=16000",
    "ppt/table4_en t5-v1_1-xxl Vanilla PT RTE": f"{PPT} train.lr=5e-3",
    "ppt/table4_en t5-v1_1-xxl Vanilla PT BoolQ": f"{T5} start=identical",
    "ppt/table4_en t5-v1_1-xxl FT SST-2": f"{FT} train.lr=5e-6",
    "ppt/table4_en t5-v1_1-small FT RTE": FT,
    "ppt/table4_zh mt5-xl FT CMNLI": FT,
    "ppt/table4_zh cpm2 FT CMNLI": """backbone.dropout=0 backbone.layer_norm_eps=null
        hardware.fp16_scaling=false""",
    "ppt/table4_zh cpm2 Vanilla PT C3": "start=identical:0.001 method.rescale=1",
    "ppt/table2 t5-v1_1-xxl Label Init. SST-2": f"{T5} start=normal:100",
    "ppt/table2 t5-v1_1-xxl Task-Related Sampling BoolQ": "start=normal:100",
    "ppt/table2 t5-v1_1-xxl Label Init. (words kept) SST-2": "start=labels",
}


@pytest.mark.parametrize("cell", tiered(SCRIPTS, lambda cell: cell in list(SCRIPTS)[::6]))
def test_a_cell_composes_to_the_authors_script(cell):
    table, _, place = cell.partition(" ")
    experiment, axes = load(table), ("backbone", "method", "task")
    first = next(c for c in experiment.cells if " ".join(c.at[axis] for axis in axes) == place)
    composed = flat(compose_run(experiment.overrides(first)).config)
    script = flat(OmegaConf.to_container(OmegaConf.from_dotlist(SCRIPTS[cell].split())))
    assert {key: composed.get(key) for key in script} == script
