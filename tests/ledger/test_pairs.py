"""Two methods on the same seeds: told from four pairs on."""

import pytest

from ptrun.ledger.experiment import read
from ptrun.ledger.page.page import pairs
from ptrun.ledger.rows import rows
from tests.ledger.small import TABLE, results


def found(tmp_path, seeds):
    scores = {
        ("small.FT.full.RTE", "paper"): {seed: 70.0 + seed for seed in range(1, 6)},
        ("small.PT_1.full.RTE", "paper"): {seed: 72.0 + seed for seed in seeds},
    }
    (tmp_path / "table.yaml").write_text(TABLE)
    results(tmp_path, scores=scores)
    return pairs(rows(read(tmp_path / "table.yaml"), tmp_path))


def test_the_common_seeds_are_compared_both_ways(tmp_path):
    told = found(tmp_path, [2, 3, 4, 5])
    (first,), (second,) = told[0], told[1]
    assert (first.other, first.seeds, first.difference) == ("PT_1", 4, -2.0)
    assert (second.other, second.difference) == ("FT", 2.0)
    assert first.p == second.p == pytest.approx(2 / 2**4)


def test_of_three_pairs_nothing_is_said(tmp_path):
    assert not any(found(tmp_path, [3, 4, 5]).values())
