"""Two methods on the same seeds: told from four pairs on."""

from ptrun.ledger.experiment import read
from ptrun.ledger.formats import MINUS
from ptrun.ledger.page.page import pairs
from ptrun.ledger.rows import rows
from ptrun.ledger.shown import shown
from tests.ledger.small import TABLE, results


def found(tmp_path, seeds):
    scores = {
        ("small.FT.full.RTE", "paper"): {seed: 70.0 + seed for seed in range(1, 6)},
        ("small.PT_1.full.RTE", "paper"): {seed: 72.0 + seed for seed in seeds},
    }
    (tmp_path / "table.yaml").write_text(TABLE)
    results(tmp_path, scores=scores)
    experiment = read(tmp_path / "table.yaml")
    return pairs(shown(experiment, rows(experiment, tmp_path))).rows


def test_the_common_seeds_are_compared_both_ways(tmp_path):
    first, second = found(tmp_path, [2, 3, 4, 5])
    assert (first["Method"], first["Compared with"], first["Seeds"]) == ("FT", "PT_1", "4")
    assert (first["Difference"], second["Difference"]) == (f"{MINUS}2.0", "+2.0")
    assert second["Compared with"] == "FT" and first["p"] == second["p"] == f"{2 / 2**4:.2f}"


def test_of_three_pairs_nothing_is_said(tmp_path):
    assert not found(tmp_path, [3, 4, 5])
