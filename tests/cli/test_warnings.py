"""Real runs: warnings are in the summary and the manifest; a good run has none."""

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.max_steps=60", "train.eval_every=20"], []),
        (
            ["train.max_steps=60", "train.eval_every=10", "train.lr=100"],
            ["train.lr=100 is far above", "the loss rose"],
        ),
    ],
)
def test_a_run_tells_what_is_wrong(ptrun, overrides, words):
    done = ptrun("task=pocket_sentiment", "method=prompt_tuning", *overrides)
    assert done.returncode == 0, done.stderr
    (file,) = ptrun.results()
    warnings = json.loads(file.read_text())["manifest"]["warnings"]
    assert bool(warnings) == bool(words)
    for text in words:
        assert any(text in warning for warning in warnings) and text in done.stdout
