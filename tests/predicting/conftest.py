"""Short runs that share a backbone, or cannot."""

import pytest

import ptrun

ROWS = "+task.source.rows={train: 16, validation: 8, test: 8}"


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Return two short runs on GPT-2, one tuned one, and one on BERT."""
    out = tmp_path_factory.mktemp("two")
    common = ["task=pocket_sentiment", ROWS, "train.max_steps=1", f"outputs={out}"]
    lines = [
        ["method=prompt_tuning", "method.length=2", "backbone=pocket_gpt2"],
        ["method=ptuning_v2", "method.length=2", "backbone=pocket_gpt2"],
        ["method=fine_tuning", "backbone=pocket_gpt2", "keep=weights"],
        ["method=prompt_tuning", "method.length=2", "backbone=pocket_bert"],
    ]
    return [ptrun.run(*line, *common) for line in lines]
