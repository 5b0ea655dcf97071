"""The claims in the ledger's page are those of the stored rows, and their verdicts follow."""

import json
from pathlib import Path
from statistics import fmean, median

import pytest

from ptrun.papers import paper as page
from ptrun.papers.ours import interval
from ptrun.papers.shown import PAPERS

CLAIMS = Path(page.__file__).with_name("claims.json")
STORED = Path(__file__).parents[2] / "benchmarks" / "results" / "claims_real.json"
EVERY = json.loads(CLAIMS.read_text())["claims"]
NEAR = 2.0


def test_a_page_has_the_claims_of_its_papers_alone():
    shown = page.claims(["IDPG"])
    assert shown.rows and all(row["Claim"].startswith("IDPG, ") for row in shown.rows)
    assert len(page.claims(PAPERS.values()).rows) == len(EVERY) and not page.claims([]).rows
    assert {one["paper"] for one in EVERY} <= set(PAPERS.values())


def test_a_page_has_what_was_checked_about_the_claims_of_its_papers():
    checked = page.claims(["IDPG"]).notes[1:]
    assert checked and all("IDPG, " in text for text in checked) and not page.claims([]).notes
    every = page.claims(PAPERS.values()).notes[1:]
    for one in EVERY:
        named = any(f"{one['paper']}, {one['says']}" in text for text in every)
        assert named == (one["verdict"] == "does not hold")


def test_the_scores_are_those_of_the_stored_rows():
    rows = json.loads(STORED.read_text())
    by_seed = [(row["row"], dict(zip(row["seeds"], row["test"], strict=True))) for row in rows]
    for one in EVERY:
        for name, scores in zip((one["first"], one["second"]), one["scores"], strict=True):
            pairs = dict(zip(one["seeds"], scores, strict=True)).items()
            assert any(row == name and pairs <= stored.items() for row, stored in by_seed)


@pytest.mark.parametrize("one", EVERY, ids=lambda one: f"{one['source']}: {one['says']}")
def test_a_verdict_follows_from_the_scores(one):
    first, second = one["scores"]
    apart = [b - a for a, b in zip(first, second, strict=True)]
    if "varies less" in one["says"]:
        far = [[abs(score - median(row)) for score in row] for row in (first, second)]
        apart = [a - b for a, b in zip(*far, strict=True)]
    gap = interval(apart, "mean", 0.0, None, 0)
    assert one["gap"] == [round(number, 2) for number in (fmean(apart), gap.low, gap.high)]
    bound = -NEAR if "close to" in one["says"] else 0.0
    expected = "undecided"
    if gap.low > bound:
        expected = "holds"
    if gap.high < bound:
        expected = "does not hold"
    assert one["verdict"] == expected
