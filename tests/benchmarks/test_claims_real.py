"""The claims on real weights: their rows, commands and page, without a run."""

import argparse
import itertools
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import claims_real
import real_files
import real_page
from real_rows import CB, LARGE_CORPUS, NAMES, ROWS, TREC_ROW

from ptrun.backbone.files import SHIPPED
from ptrun.config.compose import compose_run
from tests.tiers import tiered

GIVEN = argparse.Namespace(
    data=Path("data"), outputs=Path("out"), weights=Path("weights"), only="", minutes=1.0
)


def row(name, test, **more):
    return {
        "claim": NAMES, "row": name, "date": "2026-01-02", "metric": "f1", "rate": "1e-2",
        "rates": "1e-2,3e-2", "seeds": [2, 3, 4, 5, 6], "test": test, "learned": 1000,
        "tokens_per_second": 900, "minutes": 3.0, "options": ["backbone=minilm_l6"], **more,
    }  # fmt: skip


FIRST = {own.claim: own for own in reversed(ROWS)}


@pytest.mark.parametrize("own", tiered(ROWS, lambda own: own is FIRST[own.claim]))
def test_every_row_composes(own):
    folders = dict.fromkeys(("weights", "data", "files"), "folder")
    options = [option.format(**folders) for option in own.options]
    assert compose_run([*options, "seed=1"]).config["seed"] == 1


def test_rates_are_searched_and_the_seeds_of_a_family_are_kept():
    line = claims_real.command(ROWS[0], GIVEN)
    assert line[3] == "search" and line[-4:] == ["--sampler", "grid", "--seeds", "5"]
    undecided = next(own for own in ROWS if own.claim == TREC_ROW)
    assert claims_real.command(undecided, GIVEN)[-2:] == ["--seeds", "10"]
    untrained = next(own for own in ROWS if not own.rates)
    assert claims_real.command(untrained, GIVEN)[-1] == "seed=2"
    fixed = next(own for own in ROWS if own.rates == "3e-2" and own.seeds == 5)
    assert claims_real.command(fixed, GIVEN)[-2:] == ["train.lr=3e-2", "seed=2,3,4,5,6"]


def test_a_row_with_fewer_seeds_gets_the_others_at_its_rate(tmp_path):
    own = next(own for own in ROWS if own.claim == TREC_ROW)
    before = row(own.row, [80.0, 81, 80, 81, 80], dev=[70.0] * 5, claim=own.claim, rates=own.rates)
    line = claims_real.command(own, GIVEN, before)
    assert line[3] == "-m" and line[-2:] == ["train.lr=1e-2", "seed=7,8,9,10,11"]
    for seed in range(7, 12):
        (tmp_path / str(seed)).mkdir()
        scores = {"test": {"f1": 90.0 + seed}, "dev": {"f1": 60.0}}
        run = {"seed": seed, "run_id": "r", "metric": "f1", "metrics": scores, "manifest": {}}
        (tmp_path / str(seed) / "result.json").write_text(json.dumps(run))
    made = claims_real.record(own, tmp_path, 60.0, before)
    assert made["seeds"] == list(range(2, 12)) and made["masks"] == "1, 2"
    assert made["test"] == [80, 81, 80, 81, 80, 97, 98, 99, 100, 101] and len(made["dev"]) == 10
    assert made["minutes"] == 4.0 and made["rate"] == "1e-2"


def test_the_rate_with_the_lowest_divergence_is_chosen(tmp_path):
    own = next(own for own in ROWS if own.lowest and own.rates)
    line = claims_real.command(own, GIVEN)
    assert line[3] == "-m" and line[-3:] == [f"train.lr={own.rates}", "seed=1", "trial={}"]
    with pytest.raises(SystemExit, match="0 trials of 2e-3,5e-3,1e-2"):
        claims_real.chosen(own, tmp_path)
    runs = [(1, 2e-3, 0.3), (1, 5e-3, 0.1), (1, 1e-2, 0.2), (2, 1e-2, 0.5)]
    runs += [(seed, 5e-3, seed / 10) for seed in range(2, 7)]
    for number, (seed, rate, divergence) in enumerate(runs):
        (tmp_path / str(number)).mkdir()
        run = {"seed": seed, "run_id": "r", "metric": "f1", "config": {"train": {"lr": rate}}}
        run |= {"metrics": {part: {"f1": 5.0, "kl": divergence} for part in ("dev", "test")}}
        run |= {"manifest": {"shared_with": ["a", "b"]}, "learned_parameters": {"total": 1}}
        (tmp_path / str(number) / "result.json").write_text(json.dumps(run))
    choice = claims_real.chosen(own, tmp_path)
    assert choice == {"rate": "0.005", "seeds": []}
    line = claims_real.command(own, GIVEN, choice)
    assert line[-2:] == ["train.lr=0.005", "seed=2,3,4,5,6"]
    made = claims_real.record(own, tmp_path, 60.0, choice)
    assert made["test"] == [-20, -30, -40, -50, -60] and made["seeds"] == list(range(2, 7))
    assert (made["metric"], made["rate"], made["shared"]) == ("-100 kl", "0.005", 3)


def test_a_row_that_another_claim_has_is_not_run_again(tmp_path):
    first, second = (
        next(one for one in ROWS if (one.claim, one.row) == (claim, "hybrid PT"))
        for claim in (CB[0], LARGE_CORPUS)
    )
    options = {"options": list(first.options), "rates": first.rates, "masks": 2}
    stored = row("hybrid PT", [50.0] * 10, claim=CB[0], seeds=list(range(2, 12)), **options)
    (tmp_path / "claims_real.json").write_text(json.dumps([stored]))
    claims_real.do(second, argparse.Namespace(out=tmp_path), float("inf"))
    assert claims_real.load(tmp_path) == [stored, stored | {"claim": LARGE_CORPUS}]


def test_the_parts_of_squad_share_no_article(tmp_path):
    (tmp_path / "squad").mkdir()
    with (tmp_path / "squad" / "validation.jsonl").open("w") as file:
        for title, count in itertools.product(range(32), range(100)):
            asked = {"title": f"t{title}", "context": f"Word {title}.", "question": f"{count}?"}
            file.write(json.dumps({**asked, "answers": {"text": ["Word"]}}) + "\n")
    files = tmp_path / "files"
    real_files.write_files(tmp_path, SHIPPED / "pocket_gpt2", files)
    rows = {
        part: list(map(json.loads, (files / "squad" / f"{part}.jsonl").read_text().splitlines()))
        for part in real_files.PARTS
    }
    assert {part: len(own) for part, own in rows.items()} == real_files.PARTS
    titles = [{row["title"] for row in own} for own in rows.values()]
    assert len(set.union(*titles)) == sum(map(len, titles))
    for part, count in real_files.WRITTEN.items():
        assert len((files / "answers" / f"{part}.jsonl").read_text().splitlines()) == count
    assert (files / "document" / "document.txt").read_text().startswith("Word ")


def test_the_seeds_that_would_decide_a_claim_are_counted():
    assert [real_page.needed(1.0, deviation) for deviation in (0.1, 1.0, 3.0)] == [2, 7, 38]
    assert real_page.needed(0.0, 1.0) == real_page.needed(0.01, 1.0) == real_page.MOST + 1


def test_a_claim_that_does_not_hold_has_what_was_checked_or_is_not_explained():
    missing = {f"{TREC_ROW}: close to fine-tuning", f"{TREC_ROW}: M-IDPG above S-IDPG"}
    left = [one for one in real_page.HEADLINES if one.says in missing]
    (deep, steps), (same, rate), (without, text) = real_page.explained(left)
    assert deep == same == left[:1] and without == left[1:]
    assert steps.startswith("Steps") and rate.startswith("Rate and length")
    assert text == "Not explained."


def test_the_page_judges_and_shows_all_seeds(tmp_path):
    stored = [
        row("FT", [80.0, 81, 80, 81, 80]),
        row("PT", [30.0, 31, 30, 32, 30]),
        row("P-tuning v2", [70.0, 71, 70, 71, 70], masks=2),
        row("length 1", [60.0, 61, 60, 61, 60], claim=f"{NAMES}, length"),
        row("length 20", [60.0, 62, 62, 60, 61], claim=f"{NAMES}, length"),
    ]
    real_page.write_page(tmp_path / "page", stored, len(ROWS), ["ptrun search a=1"])
    page = (tmp_path / "page.md").read_text()
    # a row without a number has rule 1
    assert "Rows of 2026-01-02, masks 1, 2: minilm_l6 (6 layers, 23M),\n" in page
    assert f"5 of {len(ROWS)} rows are" in page and "30.0, 31.0, 30.0, 32.0, 30.0" in page
    assert (
        "| NER, 1,000 sentences: above prompt tuning | PT 30.60 ± 0.89 | P-tuning v2 70.40 ± 0.55 |"
        in page
    )
    far, close = (
        next(o for o in page.splitlines() if text in o)
        for text in ("sentences: above", "sentences: close")
    )
    assert far.endswith("| < 0.001 | < 0.001 | 5 | holds | holds |")
    assert close.endswith("| DOES NOT HOLD | DOES NOT HOLD |")
    assert "| 5 | undecided | undecided (about " in page
    assert page.endswith("\n```text\nptrun search a=1\n```\n")
    assert "Of 3 claims that were run 2 are decided, 2 after Holm's correction" in page
    assert "Of the 74 that were written before 2026-11-28, 2 are decided and 1 need more" in page
