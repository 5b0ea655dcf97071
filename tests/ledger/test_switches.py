"""Composed configurations of cells, beside what the authors' scripts set."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.config.overriding import at
from ptrun.ledger.experiment import load
from tests.tiers import tiered

T5 = {"backbone.dropout": 0, "backbone.layer_norm_eps": 1e-2}
FT = {**T5, "hardware.fp16_scaling": True, "train.weight_decay": 0.01}
LAST = {**T5, "pretraining.train.select": "last"}
SCRIPTS = {
    ("ptuning_v2/table3", "bert-large PT-2 CoNLL04"): {
        "backbone.dropout": 0.2,
        "method.dropout": None,  # follows the backbone's
        "train.lr": 2e-2,
        "method.length": 128,
        "train.batch_size": 32,
        "train.epochs": 40,
    },
    ("ptuning_v2/table3", "roberta-large PT-2 CoNLL04"): {"backbone.dropout": None},
    ("ptuning_v2/table3", "roberta-large PT-2 SQuAD1.1"): {
        "backbone.dropout": 0.2,
        "train.lr": 5e-3,
        "method.length": 16,
        "train.epochs": 30,
    },
    ("ptuning_v2/table3", "roberta-large PT-2 SQuAD2.0"): {
        "backbone.dropout": 0.2,
        "method.length": 8,
        "train.epochs": 10,
    },
    ("ppt/table4_en", "t5-v1_1-xxl FT SST-2"): {**FT, "train.lr": 5e-6},
    ("ppt/table4_en", "t5-v1_1-small FT RTE"): FT,
    ("ppt/table4_en", "t5-v1_1-xxl Vanilla PT BoolQ"): {**T5, "start": "identical"},
    ("ppt/table4_en", "t5-v1_1-xxl PPT BoolQ"): {**LAST, "pretraining.train.max_steps": 8000},
    ("ppt/table4_en", "t5-v1_1-xxl PPT RACE-m"): {**LAST, "pretraining.train.max_steps": 6000},
    ("ppt/table4_en", "t5-v1_1-xxl Unified PPT RTE"): {
        **LAST,
        "pretraining.train.max_steps": 16000,
    },
    ("ppt/table4_zh", "mt5-xl FT CMNLI"): FT,
    ("ppt/table4_zh", "cpm2 FT CMNLI"): {
        "backbone.dropout": 0,
        "backbone.layer_norm_eps": None,
        "hardware.fp16_scaling": False,
    },
    ("ppt/table4_zh", "cpm2 Vanilla PT C3"): {"start": "identical:0.001", "method.rescale": 1},
    ("ppt/table2", "t5-v1_1-xxl Label Init. SST-2"): {**T5, "start": "normal:100"},
    ("ppt/table2", "t5-v1_1-xxl Task-Related Sampling BoolQ"): {"start": "normal:100"},
    ("ppt/table2", "t5-v1_1-xxl Label Init. (words kept) SST-2"): {"start": "labels"},
}


@pytest.mark.parametrize(
    ("table", "cell"), tiered(SCRIPTS, lambda *key: key in list(SCRIPTS)[::6]), ids=str
)
def test_a_cell_has_the_values_of_its_script(table, cell):
    experiment = load(table)
    named = {f"{c.at['backbone']} {c.at['method']} {c.at['task']}": c for c in experiment.cells}
    config = compose_run(experiment.overrides(named[cell])).config
    expected = SCRIPTS[table, cell]
    assert {key: at(config, key) for key in expected} == expected
