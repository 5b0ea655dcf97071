"""The page of claims: verdicts by paired differences, and a page that is the stored results'."""

import json
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def headlines(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import headlines

    yield headlines
    for name in ("headlines", "learning", "claims"):
        sys.modules.pop(name, None)


def row(scores, seeds=None):
    return {"row": "r", "seeds": seeds or list(range(1, len(scores) + 1)), "test": scores}


@pytest.mark.parametrize(
    ("kind", "first", "second", "here"),
    [
        ("above", [50, 51, 52, 50, 51], [55, 56, 57, 55, 57], "holds"),
        ("above", [55, 56, 57, 55, 57], [50, 51, 52, 50, 51], "DOES NOT HOLD"),
        ("above", [50, 60, 50, 60, 50], [60, 50, 60, 50, 51], "undecided"),
        ("above", [50, 51, 52], [52, 51, 60], "undecided"),
        ("above", [50], [90], "one seed, no verdict"),
        ("close", [90, 91, 90, 91, 90], [89, 90, 89, 90, 89], "holds"),
        ("close", [90, 91, 90, 91, 90], [80, 81, 80, 81, 80], "DOES NOT HOLD"),
        ("steady", [10, 20, 30, 40, 50], [29, 31, 30, 31, 30], "holds"),
    ],
)
def test_verdicts_come_from_differences_seed_by_seed(headlines, kind, first, second, here):
    headline = headlines.Headline("paper", "says", "claim", "a", "b", kind)
    assert headlines.judged(headline, row(first), row(second))[-1] == here


def test_only_seeds_that_both_rows_have_are_compared(headlines):
    headline = headlines.Headline("paper", "says", "claim", "a", "b")
    apart, *_ = headlines.judged(headline, row([1, 2, 3], [1, 2, 4]), row([5, 6, 7], [2, 3, 4]))
    assert apart == [3, 4]


def test_every_headline_names_rows_that_are_run_with_five_seeds(headlines):
    claims = {claim.name: claim for claim in headlines.CLAIMS}
    for headline in headlines.HEADLINES:
        claim = claims[headline.claim]
        assert {headline.first, headline.second} <= set(claim.rows)
        assert claim.seeds == headlines.SEEDS and not claim.needs


def test_the_page_is_that_of_the_stored_results_and_fits_into_an_hour(headlines):
    stored = json.loads((FOLDER / "results" / "learning.json").read_text())
    assert (FOLDER / "results" / "claims.md").read_text() == headlines.page(stored)
    own = [one for one in stored if one["claim"] in headlines.WANTED]
    assert sum(headlines.seconds(own).values()) <= 3600
    assert "not run" in headlines.page([])


def test_pairs_are_told_apart_by_sign_flips(headlines):
    assert headlines.sign_flips([2.0] * 5) == 2 / 2**5
    assert headlines.sign_flips([0.0] * 5) == 1.0
    assert headlines.sign_flips([2.0] * 3) is None, "three pairs can never tell anything"
