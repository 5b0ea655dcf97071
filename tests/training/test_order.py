"""Batches of an epoch: the same for a list and for a file, of which one row is read for them."""

import pytest

from ptrun.readout.base import Features
from ptrun.task.stored import stored
from ptrun.training.member import batches, shuffled


def features(count):
    return [Features(str(n), [], [], {}) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "drop_last", "sizes"),
    [(10, False, [4, 4, 2]), (10, True, [4, 4]), (8, True, [4, 4]), (3, True, [3]), (0, True, [])],
)
def test_an_epoch_is_its_order_in_slices(tmp_path, count, drop_last, sizes):
    rows, read = features(count), []
    first = lambda row: read.append(row) or Features(**row)  # noqa: E731
    file = stored(tmp_path / "rows.arrow", lambda: rows, first)
    order = shuffled(count, 1, 2).tolist()
    expected = [order[4 * place :][:size] for place, size in enumerate(sizes)]
    for own in (rows, file):
        made = batches(own, 4, 1, 2, drop_last=drop_last)
        assert [made[place] for place in range(len(made))] == expected
    assert len(read) <= 1
