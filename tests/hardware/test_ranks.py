"""Who is who among the processes of a run; what they tell each other is tried in real ones."""

import pytest

from ptrun.hardware.ranks import ALONE, Ranks


def test_alone_nothing_is_shared():
    assert ALONE.main and ALONE.data_parallel == 1 and ALONE.division("cpu") is None
    assert (
        ALONE.broadcast(3) == 3 and ALONE.total([1.0]) == [1.0] and ALONE.merged({1: 2}) == {1: 2}
    )
    ALONE.wait()
    ALONE.check_same(7, 1)


@pytest.mark.parametrize(("rank", "share", "place"), [(0, 0, 0), (3, 0, 3), (4, 1, 0), (6, 1, 2)])
def test_neighbours_hold_one_model(rank, share, place):
    ranks = Ranks(rank, 8, 4, tensor="group")
    assert (ranks.share, ranks.data_parallel, ranks.main) == (share, 2, rank == 0)
    division = ranks.division("cpu")
    assert (division.rank, division.size, division.group) == (place, 4, "group")
