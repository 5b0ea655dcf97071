"""A run on examples made of a corpus, killed and started again, has the same ones and the same end.

What was made is read, not made anew, and files change no number.
"""

import pytest

from ptrun.config.compose import compose_run
from ptrun.runs.launch import launch
from ptrun.runs.plan import plan
from ptrun.task import dataset
from ptrun.training.member import Member
from tests.papers.ppt.corpora import document, write
from tests.run_folders import assert_same, rows


@pytest.fixture
def composed(tiny_folder, tmp_path):
    corpus = write(tmp_path / "corpus", [document(number) for number in range(150)])
    told = [f"backbone.path={tiny_folder('bert')}", "task=ppt_nsp", "method=prompt_tuning"]
    told += ["method.length=3", "train.batch_size=4", "train.max_steps=12", "train.eval_every=4"]
    told += [f"task.source.corpus={corpus}", "task.source.shares=[80,10,10]"]
    told += ["task.source.examples={train: 600, validation: 9, test: 9}"]
    return lambda outputs: compose_run([*told, f"outputs={tmp_path / outputs}"])


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_examples(composed, monkeypatch):
    whole = launch(composed("whole"))
    update = Member.update

    def killed(member, *rest):
        if member.step == 7:
            raise KeyboardInterrupt
        update(member, *rest)

    monkeypatch.setattr(Member, "update", killed)
    with pytest.raises(KeyboardInterrupt):
        launch(composed("cut"))
    monkeypatch.setattr(Member, "update", update)
    with monkeypatch.context() as patch:  # they are read, not made anew
        patch.setattr(dataset.Dataset, "_rows", lambda *_: pytest.fail("made anew"))
        cut = launch(composed("cut"))
    assert cut.manifest["data"] == whole.manifest["data"]
    assert cut.metrics == whole.metrics
    folders = [plan(composed(name)).folder for name in ("whole", "cut")]
    assert_same(*folders)
    assert len(rows(folders[0])) == 12
