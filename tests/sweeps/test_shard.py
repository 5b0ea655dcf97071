"""`sweep.shard=I/N`: parts of equal size that are the whole together."""

import pytest

from ptrun.errors import UserError
from ptrun.sweeps.sweep import shard


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [0, 1, 6, 20])
def test_the_shards_are_the_whole_in_order(size, count):
    parts = [shard(range(size), f"{place}/{count}") for place in range(1, count + 1)]
    assert [one for part in parts for one in part] == list(range(size))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_without_a_shard_all_is_done():
    assert shard([1, 2], None) == [1, 2]


@pytest.mark.parametrize("given", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2"])
def test_another_text_is_refused(given):
    with pytest.raises(UserError, match=r"type I/N with I from 1 to N, such as 1/4"):
        shard([1, 2], given)
