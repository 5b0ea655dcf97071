"""`ptrun compare`: equal trials from each method's space, dev chooses, test is scored once."""

import math
from collections import Counter

import pytest

from ptrun.errors import UserError
from ptrun.sweeps.compare import compare, hypercube
from ptrun.sweeps.search import space

LINE = ["task=pocket_sentiment", "train.max_steps=2", "train.batch_size=4", "train.eval_every=2"]
LINE += ["method.length=4", "+task.source.rows={train: 16, validation: 8, test: 8}"]


def test_a_hypercube_tries_each_part_of_each_range_once():
    ranges = space(["train.lr=tag(log,interval(1e-4,1e-1))", "method.length=5,20,50"]).ranges
    points = hypercube(ranges, 6, seed=1)
    assert len(points) == 6 and points == hypercube(ranges, 6, seed=1)
    assert points != hypercube(ranges, 6, seed=2)
    parts = {int((math.log10(point["train.lr"]) + 4) / 3 * 6) for point in points}
    assert parts == set(range(6))
    assert Counter(p["method.length"] for p in points) == {"5": 2, "20": 2, "50": 2}


def test_a_small_space_has_each_point_once():
    ranges = space(["method.length=range(1,4)"]).ranges
    assert len(hypercube(ranges, 9, 1)) == 3


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["task=csv"], "type method= once"),
        (["method=lora", "train.lr=1e-3,1e-2"], "train.lr: type one value"),
        (["method=lora", "seed=3"], "compare seed: leave it out"),
        (["method=lorra"], "did you mean"),
        (["method=lora", "method=ia3"], "type method= once"),
        (["method=lora", "sweep.dry_run=true"], "needs all trials"),
    ],
)
def test_wrong_lines_are_refused(typed, told):
    with pytest.raises(UserError, match=told):
        compare(typed, trials=2, seeds=2)


def done(outputs):
    return compare(
        [*LINE, "method=prompt_tuning,ptuning_v2", f"outputs={outputs}"], trials=3, seeds=2
    )


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    return done(tmp_path_factory.mktemp("compared"))


@pytest.mark.slow
def test_each_method_has_equal_trials_and_its_winner_fresh_seeds(compared):
    folder, contenders = compared
    assert [one.method for one in contenders] == ["prompt_tuning", "ptuning_v2"]
    for one in contenders:
        assert len(one.points) == len(one.trials) == 3 and not one.failed
        assert "method.length" not in one.points[0]  # typed, so not searched
        assert [run.result.seed for run in one.runs] == [2, 3]
        assert {run.result.rate for run in one.runs} == {one.winner["train.lr"]}
        for job in one.trials:
            assert job.folder.parent == folder / "trials"
            assert not (job.folder / "predictions.jsonl").exists()  # test is not scored


@pytest.mark.slow
def test_the_page_of_another_comparison_is_not_replaced(compared):
    folder, _ = compared
    before = (folder / "comparison.json").read_text()
    typed = [*LINE, "method=prompt_tuning", f"outputs={folder.parent}", "train.lr=1e-2"]
    with pytest.raises(UserError, match=r"ptrun compare with another command .* name=NAME"):
        compare(typed, trials=3, seeds=2)
    assert (folder / "comparison.json").read_text() == before


@pytest.mark.slow
def test_the_same_line_does_nothing_more(compared):
    folder, contenders = compared
    files = {job.folder / "result.json" for one in contenders for job in (*one.trials, *one.seeds)}
    before = {file: file.stat().st_mtime_ns for file in files}
    done(folder.parent)
    assert {file: file.stat().st_mtime_ns for file in files} == before
