"""Runs that share passes leave what they leave alone; what happens to one changes no other."""

import gc
import time
import weakref

import pytest
from safetensors.torch import load_file

from ptrun.errors import RunFailed, UserError
from ptrun.folder import lease
from ptrun.folder.scan import state_of
from ptrun.hardware import processes
from ptrun.runs import recipe, worker
from ptrun.runs.launch import launch_together
from ptrun.runs.plan import plan
from ptrun.training.member import Member
from tests.run_folders import assert_same, rows

METHODS = ("ptuning_v2", "prompt_tuning", "adapter", "idpg")
FILES = {"run.yaml", "metrics.jsonl", "predictions.jsonl", "prompt.safetensors", "result.json"}


@pytest.fixture
def runs(small, tmp_path):
    """Return a function that plans runs of `outputs=NAME`, one for each list of overrides."""

    def made(name, *lists, method="ptuning_v2", backbone="bert"):
        given = ["train.eval_every=2", f"method={method}", f"outputs={tmp_path / name}"]
        given += ["keep=state"]
        given += ["method.length=3"] if method in ("ptuning_v2", "prompt_tuning") else []
        given += ["method.order=4"] if method == "idpg" else []
        return [plan(small(*given, *one, backbone=backbone)) for one in lists]

    return made


def steps(folder):
    return [row["loss"] for row in rows(folder)]


@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=[] if m == METHODS[0] else pytest.mark.slow) for m in METHODS]
)
def test_runs_together_leave_what_they_leave_alone(runs, method):
    lists = [["seed=1"], ["seed=2", "train.lr=0.02"], ["seed=3", "train.max_steps=4"]]
    lists += [["seed=4", "data_seed=2", "train.batch_size=3"]]
    if method == "ptuning_v2":
        lists += [["method.length=5", "method.dropout=0.3", "seed=5"]]
    shared = launch_together(runs("shared", *lists, method=method))
    for one, done in zip(runs("alone", *lists, method=method), shared, strict=True):
        (alone,) = launch_together([one])
        assert done.metrics == alone.metrics and done.run_id == alone.run_id
        assert done.manifest.keys() == alone.manifest.keys()
        others = [other.run_id for other in shared if other is not done]
        assert done.manifest["shared_with"] == others and alone.manifest["shared_with"] == []
        compare_folders(one.folder)


def test_runs_of_a_group_read_and_tokenize_the_same_rows_once(runs, monkeypatch):
    """Another data seed or length draws or cuts other rows; another seed of the model does not."""
    splits, tokens = [], []
    split_of, tokenized = recipe.split_of, recipe.tokenized
    monkeypatch.setattr(recipe, "split_of", lambda own: splits.append(own) or split_of(own))
    monkeypatch.setattr(
        recipe, "tokenized", lambda method, own: tokens.append(own) or tokenized(method, own)
    )
    few = ["setting=few_shot_32", "setting.k=2"]
    launch_together(runs("alike", [*few, "seed=1"], [*few, "seed=2"], [*few, "train.lr=0.02"]))
    assert len(splits) == 1 and len(tokens) == 3  # train, dev and test
    splits.clear()
    tokens.clear()
    launch_together(runs("others", few, [*few, "data_seed=2"], [*few, "method.length=4"]))
    assert len(splits) == 2 and len(tokens) == 9


def test_each_run_has_its_own_share_of_the_seconds(runs):
    began = time.monotonic()
    both = launch_together(runs("shared", ["seed=1"], ["seed=2", "train.max_steps=2"]))
    took = time.monotonic() - began
    long, short = (done.manifest["seconds"] for done in both)
    assert 0 < short < long and long + short <= took


def compare_folders(folder):
    """Compare a run that was alone with the same run that shared passes."""
    other = shared_folder(folder)
    names = {file.name for file in folder.iterdir()}
    assert names == {file.name for file in other.iterdir()} and names >= FILES
    assert steps(other) == pytest.approx(steps(folder), abs=1e-5)
    predictions = [(one / "predictions.jsonl").read_text() for one in (folder, other)]
    assert predictions[0] == predictions[1]
    ours, theirs = (load_file(one / "prompt.safetensors") for one in (folder, other))
    assert all(ours[name].allclose(theirs[name], atol=1e-3) for name in ours.keys() | theirs.keys())


def shared_folder(folder):
    return folder.parents[2] / "shared" / "runs" / folder.name


@pytest.mark.parametrize("method", ["ptuning_v2", "lora"])
def test_a_run_leaves_no_backbone_in_memory(runs, method):
    """Nothing of a run is in a cycle, so that its backbone goes when the run does."""
    gc.disable()
    try:
        for seed in (1, 2):  # the first use of transformers keeps the frames of its caller
            gc.collect()
            planned_runs = runs("alone", [f"seed={seed}"], method=method, backbone="bert")
            kept = weakref.ref(planned_runs[0].backbone)
            (done,) = launch_together(planned_runs)
            assert done.status == "finished"
            del planned_runs
        assert kept() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_a_run_that_fails_and_one_that_stops_early_change_no_other(runs):
    lists = [["seed=1"], ["seed=2", "train.lr=1e30", "train.clip=null"]]
    lists += [["seed=3", "train.patience=1"]]
    first, failed, stopped = launch_together(runs("shared", *lists))
    assert isinstance(failed, RunFailed) and "failed: loss" in str(failed)
    one, _, three = runs("alone", *lists)
    for own, alone in ((first, launch_together([one])), (stopped, launch_together([three]))):
        assert own.metrics == alone[0].metrics
        assert own.manifest["steps"] == alone[0].manifest["steps"]
    folder = shared_folder(three.folder).parent
    assert len(list(folder.glob("*/result.json"))) == 2 and list(folder.glob("*/failure.json"))


def test_a_run_that_is_refused_leaves_nothing_and_changes_no_other(runs):
    wrong = ["setting=k_1000", "seed=2"]
    done, refused = launch_together(runs("shared", ["seed=1"], wrong))
    assert isinstance(refused, UserError) and done.status == "finished"
    folders = list((runs("x", ["seed=1"])[0].request.outputs.parent / "shared" / "runs").iterdir())
    assert [folder.name for folder in folders if not folder.name.startswith(".")] == [done.run_id]


@pytest.mark.slow
def test_a_finished_run_is_read_and_a_held_one_left(runs):
    (one,) = runs("shared", ["seed=1"])
    (done,) = launch_together([one])
    written = (one.folder / "result.json").stat().st_mtime_ns
    two = runs("shared", ["seed=2"])[0]
    with lease.held(two.folder):
        again, busy, third = launch_together(runs("shared", ["seed=1"], ["seed=2"], ["seed=3"]))
    assert again == done and isinstance(busy, lease.Busy) and third.status == "finished"
    assert (one.folder / "result.json").stat().st_mtime_ns == written
    assert third.manifest["shared_with"] == []


def test_a_killed_group_goes_on_with_the_same_bits(runs, monkeypatch):
    lists = [["seed=1"], ["seed=2", "train.eval_every=3"], ["seed=3", "train.max_steps=2"]]
    calm = launch_together(runs("alone", *lists))
    real = Member.update

    def update(member, before, *figures):
        if member.seed == 2 and before == 4:
            raise KeyboardInterrupt
        real(member, before, *figures)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Member, "update", update)
        launch_together(runs("shared", *lists))
    ids = tuple(done.run_id for done in calm)
    folders = [one.folder for one in runs("alone", *lists)]
    states = [state_of(shared_folder(folder)) for folder in folders]
    assert [state.group for state in states] == [ids] * 3
    assert [state.detail for state in states] == ["at step 4", "at step 4", "at step 2"]
    launch_together(runs("shared", *lists))
    for folder in folders:
        assert_same(folder, shared_folder(folder))


@pytest.mark.slow
def test_an_error_of_all_is_narrowed_down_to_the_run_that_causes_it(runs, monkeypatch):
    real = recipe._train

    def train(works, engine):
        if any(work.planned.seed == 3 for work in works):
            raise UserError("out of memory")
        real(works, engine)

    monkeypatch.setattr(recipe, "_train", train)
    group = worker.Runs()
    group.planned = dict(enumerate(runs("shared", *([f"seed={n}"] for n in (1, 2, 3)))))
    texts = {str(i): processes.text_of(own.request) for i, own in group.planned.items()}
    ends = worker._attempt(group, texts, [])
    assert [end.kind for end in ends] == ["finished", "finished", "refused"]


def test_a_run_of_a_group_resumes_alone(runs, monkeypatch):
    lists = [["seed=1"], ["seed=2"]]
    whole = launch_together(runs("whole", *lists))
    real, calls = recipe.TorchEngine._judge, []

    def judge(engine, active):
        real(engine, active)
        calls.append(len(active))
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(recipe.TorchEngine, "_judge", judge)
    with pytest.raises(KeyboardInterrupt):
        launch_together(runs("cut", *lists))
    monkeypatch.setattr(recipe.TorchEngine, "_judge", real)
    for expected, own in zip(whole, runs("cut", *lists), strict=True):
        (done,) = launch_together([own])
        assert done.metrics == expected.metrics
        other = own.folder.parents[2] / "whole" / "runs" / done.run_id
        assert steps(own.folder) == pytest.approx(steps(other), abs=1e-5)


@pytest.mark.slow
def test_each_run_of_a_group_has_a_tracker_of_its_own(runs, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    own = runs("shared", *([f"seed={n}", "tracking=wandb"] for n in (1, 2)))
    done = launch_together(own)
    assert [one.status for one in done] == ["finished"] * 2
    for one in own:
        (folder,) = (one.folder / "wandb").glob("offline-run-*")
        assert one.run_id in folder.name and list(folder.glob("*.wandb"))
