"""The claims on real weights: their rows, commands and page, without a run."""

import argparse
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import claims_real
import real_page
from real_rows import NAMES, ROWS

from ptrun.config.compose import compose_run
from tests.tiers import tiered

GIVEN = argparse.Namespace(
    data=Path("data"), outputs=Path("out"), weights=Path("weights"), only="", minutes=1.0
)


def row(name, test, **more):
    return {
        "claim": NAMES, "row": name, "date": "2026-01-02", "metric": "f1", "rate": "1e-2",
        "seeds": [2, 3, 4, 5, 6], "test": test, "learned": 1000, "tokens_per_second": 900,
        "minutes": 3.0, **more,
    }  # fmt: skip


FIRST = {own.claim: own for own in reversed(ROWS)}


@pytest.mark.parametrize("own", tiered(ROWS, lambda own: own is FIRST[own.claim]))
def test_every_row_composes(own):
    options = [option.format(weights="weights", data="data") for option in own.options]
    assert compose_run([*options, "seed=1"]).config["seed"] == 1


def test_rates_are_searched_and_five_seeds_are_kept():
    line = claims_real.command(ROWS[0], GIVEN)
    assert line[3] == "search" and line[-4:] == ["--sampler", "grid", "--seeds", "5"]
    untrained = next(own for own in ROWS if not own.rates)
    assert claims_real.command(untrained, GIVEN)[-1] == "seed=2"
    fixed = next(own for own in ROWS if own.rates == "3e-2")
    assert claims_real.command(fixed, GIVEN)[-2:] == ["train.lr=3e-2", "seed=2,3,4,5,6"]


def test_the_page_judges_and_shows_all_seeds(tmp_path):
    stored = [
        row("FT", [80.0, 81, 80, 81, 80]),
        row("PT", [30.0, 31, 30, 32, 30]),
        row("P-tuning v2", [70.0, 71, 70, 71, 70], masks=2),
    ]
    real_page.write_page(tmp_path / "page", stored, len(ROWS))
    page = (tmp_path / "page.md").read_text()
    assert "Rows of 2026-01-02, masks 1, 2:" in page  # a row without a number has rule 1
    assert f"3 of {len(ROWS)} rows are" in page and "30.0, 31.0, 30.0, 32.0, 30.0" in page
    assert (
        "| NER, 1,000 sentences: above prompt tuning | PT 30.60 ± 0.89 | P-tuning v2 70.40 ± 0.55 |"
        in page
    )
    far, close = (
        next(o for o in page.splitlines() if text in o)
        for text in ("sentences: above", "sentences: close")
    )
    assert far.endswith("| holds |") and close.endswith("| DOES NOT HOLD |")
