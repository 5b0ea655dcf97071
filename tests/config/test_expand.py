"""The runs of a sweep from a command line."""

import pytest

from ptrun.config.overriding import expanded
from ptrun.errors import UserError


def test_commas_are_jobs_the_first_key_slowest():
    found = expanded(["seed=1,2", "method=prompt_tuning,ptuning_v2", "train.lr=0.1"])
    assert [title for _, title in found] == [
        f"seed={seed} method={method}"
        for seed in (1, 2)
        for method in ("prompt_tuning", "ptuning_v2")
    ]
    assert found[0][0] == ("seed=1", "method=prompt_tuning", "train.lr=0.1")
    assert expanded([]) == [((), "")]


def test_a_list_is_one_value_and_a_range_several():
    ((one, title),) = expanded(["method.layers=[1,2]"])
    assert one == ("method.layers=[1,2]",) and title == ""
    assert [title for _, title in expanded(["seed=range(1,4)"])] == ["seed=1", "seed=2", "seed=3"]


def test_what_cannot_be_read_is_refused():
    with pytest.raises(UserError):
        expanded(["seed=[1,"])
