"""`keep=`: the large files that a finished run leaves."""

import pytest

from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch

SMALL = {"metrics.jsonl", "predictions.jsonl", "result.json", "run.yaml"}
PROMPT, STATE = "prompt.safetensors", "state.safetensors"


@pytest.fixture
def files(small, tmp_path):
    def done(*overrides):
        launch(small("train.max_steps=1", *overrides))
        (folder,) = (tmp_path / "runs").iterdir()
        return folder

    return done


@pytest.mark.parametrize(
    ("overrides", "kept"),
    [
        (["method=fine_tuning"], {PROMPT}),
        (["method=fine_tuning", "keep=none"], set()),
        (["method=fine_tuning", "keep=state"], {STATE}),
        (["method=fine_tuning", "keep=all"], {PROMPT, STATE}),
        (["keep=none"], {PROMPT}),
        (["keep=state"], {PROMPT, STATE}),
    ],
    ids=lambda own: " ".join(own) if isinstance(own, list) else "",
)
def test_a_finished_run_keeps_what_was_asked(files, overrides, kept):
    folder = files(*overrides)
    assert {file.name for file in folder.iterdir()} == SMALL | kept
    assert all(file.stat().st_mode & 0o777 == 0o644 for file in folder.iterdir())


def test_a_failed_run_keeps_its_state_and_none_is_explained_by_predict(files):
    folder = files("method=fine_tuning", "keep=none")
    with pytest.raises(UserError, match=r"kept no prompt.safetensors.*keep=weights rerun=true"):
        ready(str(folder), [])
