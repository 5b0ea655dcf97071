"""One prompt for several data sets, then for one of them alone (MPT-2): runs, resumes, reports."""

import json

import pytest


@pytest.mark.slow
def test_a_joint_prompt_is_learned_resumed_and_learned_on(ptrun):
    few = ["train.max_steps=4", "train.eval_every=2", "method.length=3", "hardware=cpu"]
    few += [f"backbone.path={ptrun.backbone}", f"data_dir={ptrun.data_dir}"]
    few += ["++task.tasks.sst2.max_tokens=32"]
    folder = ptrun.folder / "ptrun_conf" / "task"
    folder.mkdir(parents=True)
    (folder / "joint.yaml").write_text(
        "defaults:\n  - sst2@tasks.sst2\n  - conll03@tasks.conll03\n  - _self_\n"
        "_target_: ptrun.task.multi.Multi\nname: joint\nversion: 1\n"
    )
    joint = ["task=joint", "readout.pooler=none", "keep=state", *few]
    done = ptrun(*joint)
    assert done.returncode == 0, done.stderr
    (file,) = ptrun.results()
    first = json.loads(file.read_text())
    assert {"mean", "sst2_accuracy", "conll03_f1"} <= set(first["metrics"]["test"])
    file.unlink()  # as if it had been killed before its end: the same command goes on
    again = ptrun(*joint)
    assert "resuming from step 4 of 4" in again.stderr
    assert json.loads(file.read_text())["metrics"] == first["metrics"]
    alone = [*few[:-1], "task=sst2", f"start=run:{first['run_id']}"]
    done = ptrun(*alone)
    assert done.returncode == 0, done.stderr
    assert len(ptrun.results()) == 2
    table = ptrun("report", "outputs").stdout
    assert "joint" in table and "sst2" in table
