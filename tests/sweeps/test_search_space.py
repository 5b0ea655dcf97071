"""The ranges of a command line as Optuna's distributions."""

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from ptrun.errors import UserError
from ptrun.sweeps.search import space


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("train.lr=tag(log,interval(1e-4,1e-1))", FloatDistribution(1e-4, 1e-1, log=True)),
        ("method.dropout=interval(0.0,0.5)", FloatDistribution(0.0, 0.5)),
        ("method.length=int(interval(1,8))", IntDistribution(1, 8)),
        ("method.length=range(2,11,3)", IntDistribution(2, 8, step=3)),
        ("method.length=5,10", CategoricalDistribution(["5", "10"])),
        ("method=choice(ptuning_v2,idpg)", CategoricalDistribution(["ptuning_v2", "idpg"])),
    ],
)
def test_a_range_is_a_distribution(typed, expected):
    found = space(["task=sst2", typed])
    assert found.ranges == {typed.partition("=")[0]: expected} and found.fixed == ("task=sst2",)


def test_a_grid_has_all_values():
    found = space(["method.length=range(1,4)", "train.lr=1e-3,1e-2"])
    assert found.grid == {"method.length": [1, 2, 3], "train.lr": ["0.001", "0.01"]}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["task=sst2"], "no key has a range"),
        (["seed=1,2"], "search seed: one value only; --seeds N"),
        (["train.lr=tag(log,interval(-1,1))"], r"train\.lr=.*log"),
        (["train.lr=interval("], "not readable"),
    ],
)
def test_a_wrong_range_is_named(typed, message):
    with pytest.raises(UserError, match=message):
        space(typed)


def test_an_interval_has_no_grid():
    with pytest.raises(UserError, match=r"search train\.lr: --sampler grid needs a list"):
        _ = space(["train.lr=interval(0.1,0.2)"]).grid
