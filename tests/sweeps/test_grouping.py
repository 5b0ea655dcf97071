"""Which runs share passes, and how many."""

from ptrun.sweeps.scheduler import groups


def test_equal_shapes_share_up_to_the_limit_and_none_is_alone():
    items = [("a", 1), ("b", 2), (None, 3), ("a", 4), ("a", 5), (None, 6), ("b", 7)]
    assert groups(items, 2, 1) == [[1, 4], [2, 7], [3], [5], [6]]
    assert groups(items, 8, 1) == [[1, 4, 5], [2, 7], [3], [6]]


def test_each_worker_gets_a_group_if_there_are_few_shapes():
    items = [("a", number) for number in range(6)]
    assert groups(items, 8, 2) == [[0, 1, 2], [3, 4, 5]]
    assert groups(items, 8, 4) == [[0, 1], [2, 3], [4, 5]]
    assert groups(items, 8, 8) == [[n] for n in range(6)]
    assert groups([], 8, 2) == []
