"""A run again from what it was asked for, and the difference to it."""

import json

import pytest
import yaml


@pytest.mark.slow
def test_a_run_is_done_again_beside_the_old_one_to_the_last_bit(ptrun):
    assert ptrun(*ptrun.small("train.max_steps=3")).returncode == 0
    (file,) = ptrun.results()
    written = file.stat().st_mtime_ns
    kept = yaml.safe_load((file.parent / "run.yaml").read_text())
    assert kept["config"]["backbone"]["path"] == str(ptrun.backbone)
    assert kept["config"]["data_dir"] == str(ptrun.data_dir) and "tracking" not in kept["config"]
    for place in ("reruns", "reruns/2"):
        done = ptrun("rerun", file.parent.name[:20])
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().splitlines()[-1].startswith("equal to the last bit: metrics, ")
        assert (ptrun.folder / "outputs" / place / file.parent.name / "result.json").is_file()
    assert file.stat().st_mtime_ns == written
    assert "reruns" not in ptrun("report", "outputs").stdout
    again = ptrun("rerun", str(file.parent), "seed=2", "train.lr=1e-2")
    assert "train.lr  0.07 → 0.01" in again.stdout and "seed  1 → 2" in again.stdout
    assert "different configurations: they differ in train.lr, seed" in again.stdout
    assert ptrun.folder.joinpath("outputs/runs").is_dir() and len(ptrun.results()) == 4


@pytest.mark.slow
def test_a_failed_run_fails_again_and_the_difference_is_told(ptrun):
    small = ptrun.small("train.clip=null", "train.lr=1e30")
    assert ptrun(*small).returncode == 1
    (file,) = ptrun.folder.rglob("failure.json")
    done = ptrun("rerun", str(file.parent))
    assert done.returncode == 1 and "failed: loss" in done.stderr
    assert "equal to the last bit: metrics, rows of metrics.jsonl" in done.stdout
    assert json.loads(file.read_text())["status"] == "failed"


WRONG = {
    "train.lrr=1": "did you mean 'lr'?",
    "method.lenght=3": "did you mean 'length'?",
    "name=x": "a rerun sets name itself",
}


@pytest.mark.slow
def test_what_is_gone_or_unknown_is_named_with_what_to_type(ptrun):
    assert ptrun(*ptrun.small("train.max_steps=2")).returncode == 0
    (file,) = ptrun.results()
    for typed, told in WRONG.items():
        done = ptrun("rerun", str(file.parent), typed)
        assert done.returncode == 1 and told in done.stderr, done.stderr
    moved = ptrun.data_dir.rename(ptrun.data_dir.with_name("moved"))
    lost = ptrun("rerun", str(file.parent))
    assert lost.returncode == 1
    assert f"these files do not exist: data_dir={ptrun.data_dir}" in lost.stderr
    assert f"ptrun rerun {file.parent} data_dir=PATH" in lost.stderr
    done = ptrun("rerun", str(file.parent), f"data_dir={moved}")
    assert done.returncode == 0 and "equal to the last bit" in done.stdout, done.stderr
    kept = file.parent / "run.yaml"
    kept.write_text("names: [")
    assert "run.yaml: damaged" in ptrun("rerun", str(file.parent)).stderr
    kept.unlink()
    told = ptrun("rerun", str(file.parent)).stderr
    assert "run.yaml: missing. Type the command of the run with rerun=true." in told
