"""Typing errors and words of other tools: each leads to the right name or line."""

import pytest

from ptrun.cli import _no_command
from ptrun.config.compose import compose_run
from ptrun.errors import UserError

OVERRIDES = {
    "lr=1e-3": "type train.lr=VALUE",
    "learning_rate=1e-3": "type train.lr=VALUE",
    "epochs=3": "type train.epochs=VALUE",
    "batch_size=8": "type train.batch_size=VALUE",
    "max_steps=10": "type train.max_steps=VALUE",
    "model=bert": "type backbone=NAME or backbone.path=FOLDER",
    "dataset=sst2": "type task=NAME",
    "csv=a.csv": "task=csv task.train=FILE",
    "seeds=1,2,3": "type -m seed=1,2,3",
    "device=cuda": "type hardware=gpu",
    "gpu=1": "type hardware=gpu",
    "output_dir=x": "type outputs=DIR",
    "length=20": "type method.length=VALUE",
    "metod=lora": "did you mean 'method'",
    "bakbone=gpt2": "did you mean 'backbone'",
    "method=p_tuning_v2": "did you mean 'ptuning_v2'",
    "method=ptuning_v3": "did you mean 'ptuning_v2'",
    "method=prompt-tuning": "did you mean 'prompt_tuning'",
    "method=LoRA": "did you mean 'lora'",
    "backbone=bert-base-uncased": "did you mean 'bert_base_uncased'",
    "backbone=google-bert/bert-base-cased": "did you mean 'bert_base_cased'",
    "backbone=roberta-large": "did you mean 'roberta_large'",
    "backbone=google/t5-base": "'t5_base_lm_adapt'",
    "task=SST-2": "did you mean 'sst2'",
    "task=mnli": "'glue_mnli'",
    "task=conll2003": "did you mean 'conll03'",
    "train=x.csv": "it has keys; type train.KEY=VALUE. For a file: task=csv task.train=x.csv",
    "seed=null": "a value is needed. Type seed=VALUE",
    "=3": "expected KEY=VALUE",
    "method=3": "method=3: unknown. Allowed: adapter",
    "backbone=true": "backbone=true: unknown. Allowed: albert",
    "backbone=./bert": "type backbone.path=./bert",
    "task=x.csv": "type task=csv task.train=x.csv task.text=COLUMN task.label=COLUMN",
}
WORDS = {
    "predct": "did you mean 'predict'",
    "lora": "type ptrun method=lora",
    "task": "type ptrun task=VALUE",
    "sst2": "type ptrun task=sst2",
    "ppt/table4": "type ptrun experiment=ppt/table4",
}


@pytest.mark.parametrize("typed", OVERRIDES)
def test_a_root_key_or_an_option(typed):
    with pytest.raises(UserError) as raised:
        compose_run([typed])
    assert OVERRIDES[typed] in str(raised.value)


@pytest.mark.parametrize("word", WORDS)
def test_a_first_word_that_is_no_command(word):
    assert WORDS[word] in _no_command(word)
