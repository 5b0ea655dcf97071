"""`keep=`: the large files that a finished run leaves."""

import pytest

from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch

SMALL = {"metrics.jsonl", "predictions.jsonl", "result.json", "run.yaml"}
PROMPT, STATE = "prompt.safetensors", "state.safetensors"


@pytest.fixture
def files(tmp_path, data_dir, tiny_folder):
    def done(*overrides):
        given = [f"data_dir={data_dir}", f"backbone.path={tiny_folder('bert')}", "task=sst2"]
        given += ["train.batch_size=2", "train.max_steps=1", f"outputs={tmp_path}"]
        launch(compose_run([*given, *overrides]))
        (folder,) = (tmp_path / "runs").iterdir()
        return folder

    return done


def names(folder):
    return {file.name for file in folder.iterdir()}


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
    assert names(folder) == SMALL | kept
    assert all(file.stat().st_mode & 0o777 == 0o644 for file in folder.iterdir())


def test_a_failed_run_keeps_its_state_and_none_is_explained_by_predict(files):
    folder = files("method=fine_tuning", "keep=none")
    with pytest.raises(UserError, match=r"kept no prompt.safetensors.*keep=weights rerun=true"):
        ready(str(folder), [])
