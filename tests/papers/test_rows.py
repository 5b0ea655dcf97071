"""Rows of the ledger from run folders: what dev selects, what is missing, means, and verdicts."""

import json
import logging
import math
from dataclasses import replace

import numpy as np
import pytest

from ptrun.errors import UserError
from ptrun.papers import rows as requested
from ptrun.papers.experiment import Rule, jobs, parse, read
from ptrun.papers.ours import interval
from ptrun.papers.rows import rows
from ptrun.papers.shown import Shown
from tests.papers import small

TABLE = """
paper: made
table: up
title: means
source: nowhere
protocol: none
precision: fp32
seeds: [1, 2, 3]
backbone: {small: ""}
method: {FT: method=fine_tuning}
setting: {full: ""}
task: {RTE: task=rte, CB: task=cb, AVG: ""}
metrics: {accuracy: accuracy, F1: macro_f1}
derived: [{when: {task: AVG}, mean_over: task}]
cells:
  - [small, FT, full, RTE, accuracy, 70.0]
  - [small, FT, full, CB, accuracy, 80.0]
  - [small, FT, full, CB, F1, 60.0]
  - [small, FT, full, AVG, accuracy, 70.0]
"""


@pytest.fixture
def made(tmp_path):
    file = tmp_path / "up.yaml"
    file.write_text(TABLE)
    return read(file)


def put(outputs, key, *scores, **changes):
    small.put(outputs / "made" / "up" / f"small.FT.full.{key}", TABLE, *scores, **changes)


def three(outputs, key, score, **changes):
    """Write runs of three seeds, whose scores are one apart."""
    for seed in (1, 2, 3):
        put(outputs, key, seed, score + seed, **changes)


def edited(outputs, change):
    """Change the first result by hand."""
    file = min(outputs.rglob("result.json"))
    content = json.loads(file.read_text())
    change(content)
    content.pop("digest")  # it would tell
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("ddof", [0, 1])
def test_deviations_divide_as_the_table_s(tmp_path, ddof):
    """IDPG's tables have numpy's default, n; the interval needs the paper's with n - 1."""
    file = tmp_path / "up.yaml"
    text = TABLE.replace("RTE, accuracy, 70.0]", "RTE, accuracy, 70.0, 1.0]")
    file.write_text(text.replace("seeds:", f"ddof: {ddof}\nseeds:"))
    scores = [70.0, 71.0, 73.0]
    for seed, score in enumerate(scores, 1):
        put(tmp_path, "RTE", seed, score)
    put(tmp_path, "CB", 1, 80.0)
    first, second, *_ = rows(read(file), tmp_path)
    assert first.paper.std == pytest.approx(np.std(scores, ddof=ddof))
    assert second.paper.std is None
    printed = 1.0 if ddof else math.sqrt(1.5)
    assert first.experiment.sample_std(first.cell) == pytest.approx(printed)
    assert first.gap == interval(scores, "mean", 70.0, printed, 3, 0.1)


def test_nothing_run_is_a_command(made, tmp_path):
    first, *_, mean = rows(made, tmp_path)
    assert first.verdict == "not run"
    assert first.why == "ptrun experiment=made/up cell=small.FT.full.RTE"
    assert "mean over task" in mean.why


def test_dev_selects_among_what_was_searched_and_seeds_are_all_told(made, tmp_path):
    for seed, score in ((1, 70.0), (2, 71.0)):
        put(tmp_path, "RTE", seed, score, dev=60.0)
        put(tmp_path, "RTE", seed, 99.0, dev=40.0, group="b")
    put(tmp_path, "RTE", 3, 0.0, status="failed")
    row = rows(made, tmp_path)[0]
    assert dict(row.paper.scores) == {1: 70.0, 2: 71.0} and row.paper.value == 70.5
    assert (row.paper.missing, row.paper.failed, row.paper.searched) == ([3], [3], 2)
    assert row.paper.hours == 5
    assert row.honest is None and row.verdict == "within" and row.why is None


def test_a_lucky_seed_of_another_configuration_is_not_chosen(made, tmp_path):
    for seed, score in ((1, 70.0), (2, 71.0)):
        put(tmp_path, "RTE", seed, score, dev=60.0)
    put(tmp_path, "RTE", 1, 99.0, dev=90.0, group="b")
    table = Shown(made, rows(made, tmp_path))
    assert dict(table.rows[0].paper.scores) == {1: 70.0, 2: 71.0}
    seeds = "2 of 3, without 3, best of 1 of 2 configurations on dev"
    assert table.table.rows[0]["Seeds"] == seeds


def test_a_score_of_dev_that_is_no_number_is_left_out(made, tmp_path):
    put(tmp_path, "RTE", 1, 70.0, dev=float("nan"))
    put(tmp_path, "RTE", 1, 60.0, dev=1.0, group="b")
    assert rows(made, tmp_path)[0].paper.value == 60.0


def test_one_seed_is_no_verdict_and_protocols_stand_apart(made, tmp_path):
    put(tmp_path, "RTE", 1, 75.0, protocol="honest")
    row = rows(made, tmp_path)[0]
    assert row.paper is None and row.honest.value == 75.0
    assert row.verdict == "not comparable" and "1 seed" in row.why


def test_the_best_of_fewer_seeds_is_not_the_papers(made, tmp_path):
    best = replace(made, statistic="best_3", seeds=[1, 2, 3, 4])
    three(tmp_path, "RTE", 60.0)
    row = rows(best, tmp_path)[0]
    assert (row.verdict, row.gap) == ("not comparable", None)
    assert "3 seeds instead of 4" in row.why
    put(tmp_path, "RTE", 4, 64.0)
    assert rows(best, tmp_path)[0].verdict == "below"


def test_a_mean_takes_the_metrics_of_a_task_together_first(made, tmp_path):
    three(tmp_path, "RTE", 70.0)
    three(tmp_path, "CB", 80.0)
    *_, mean = rows(made, tmp_path)
    assert dict(mean.paper.scores) == {s: (70 + s + (80 + s + 60 + s) / 2) / 2 for s in (1, 2, 3)}
    assert mean.verdict == "within"


def test_a_mean_over_the_grid_selects_none_and_needs_all_of_it(tmp_path):
    """As over PET's patterns, whose best is another cell with the same runs."""
    file = tmp_path / "up.yaml"
    head = TABLE[: TABLE.index("derived")].replace("fine_tuning}", "fine_tuning, mean: ''}")
    file.write_text(
        f"{head}grid: [{{over: {{train.lr: [1e-4, 1e-3], train.batch_size: [4]}}}}]\n"
        "derived: [{when: {method: mean}, mean_over: grid}]\n"
        "of: [{when: {method: mean}, table: made/up, called: {method: FT}}]\n"
        "cells:\n  - [small, FT, full, CB, F1, 60.0]\n  - [small, mean, full, CB, F1, 60.0]\n"
    )
    made, batch = read(file), ("train.batch_size=4",)
    found = jobs(made, parse(["experiment=made/up"]))
    assert len(found) == 6 and {job.key for job in found} == {"small.FT.full.CB"}
    three(tmp_path, "CB", 80.0, dev=90.0, typed=("train.lr=1e-4", *batch))
    best, mean = rows(made, tmp_path)
    assert best.paper.value == 62.0 and mean.paper is None
    assert mean.why == "ptrun experiment=made/up cell=small.FT.full.CB"
    three(tmp_path, "CB", 70.0, group="b", typed=("train.lr=1e-3", *batch))
    best, mean = rows(made, tmp_path)
    assert best.paper.value == 62.0 and dict(mean.paper.scores) == {1: 56.0, 2: 57.0, 3: 58.0}
    assert mean.paper.missing == []


def test_a_cell_that_repeats_a_mean_of_another_table_is_that_mean(made, tmp_path, monkeypatch):
    monkeypatch.setattr("ptrun.papers.rows.load", lambda name: made)
    head = TABLE[: TABLE.index("derived")].replace("table: up", "table: figure")
    own = 'of: [{when: {task: AVG}, table: made/up}]\nnot_run: [{why: "a mean of up"}]\n'
    file = tmp_path / "figure.yaml"
    file.write_text(head + own + "cells: [[small, FT, full, AVG, accuracy, 70.0]]\n")
    (row,) = rows(read(file), tmp_path)
    assert (row.verdict, row.why) == ("not run", "a mean of up")
    three(tmp_path, "RTE", 70.0)
    three(tmp_path, "CB", 80.0)
    (row,) = rows(read(file), tmp_path)
    assert dict(row.paper.scores) == dict(rows(made, tmp_path)[-1].paper.scores)
    assert row.verdict == "within"


@pytest.mark.parametrize("test", [{}, {"accuracy": float("nan")}])
def test_a_run_without_the_number_is_named(made, tmp_path, test):
    put(tmp_path, "RTE", 1, 70.0)
    edited(tmp_path, lambda content: content["metrics"].update(test=test))
    with pytest.raises(UserError, match=r"run -paper-s1 has no test.accuracy"):
        rows(made, tmp_path)


@pytest.mark.parametrize("change", [{"metrics": None}, {"names": []}, {"seed": "x"}])
def test_a_damaged_result_is_named_and_not_counted(made, tmp_path, change, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ptrun"), "propagate", True)
    for seed in (1, 2):
        put(tmp_path, "RTE", seed, 70.0)
    file = min(tmp_path.rglob("result.json"))
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    assert [*rows(made, tmp_path)[0].paper.scores] == [2]
    assert f"not counted: {file}: damaged" in caplog.text


@pytest.mark.parametrize(
    ("typed", "differs"),
    [
        (["train.max_steps=1"], "train.max_steps=1"),
        (["backbone=pocket_electra", "train.epochs=3"], "backbone=pocket_electra, train.epochs=3"),
        (["hardware.precision=bf16"], "hardware.precision=bf16"),
        (["data_seed=7"], "data_seed=7"),
    ],
)
def test_runs_typed_otherwise_are_listed_and_never_compared(made, tmp_path, typed, differs):
    three(tmp_path, "RTE", 90.0, group="other", typed=typed)
    row = rows(made, tmp_path)[0]
    assert (row.verdict, row.paper, row.gap) == ("not run", None, None)
    assert row.variants == {differs: {1: 91.0, 2: 92.0, 3: 93.0}}
    three(tmp_path, "RTE", 70.0)
    row = rows(made, tmp_path)[0]
    assert dict(row.paper.scores) == {1: 71.0, 2: 72.0, 3: 73.0} and len(row.variants) == 1
    (text,) = Shown(made, [row]).variants
    assert text.endswith(f"3 runs with {differs}, not compared: 91.0, 92.0, 93.0")


def test_another_model_in_the_folder_of_the_papers_is_a_variant(made, tmp_path):
    large = replace(made, shared=["backbone=bert_large_cased"])
    put(tmp_path, "RTE", 1, 70.0, typed=("backbone=bert_large_cased",))
    assert rows(large, tmp_path)[0].paper.value == 70.0
    edited(tmp_path, lambda content: content["manifest"].update(backbone={"parameters": 1_200_000}))
    assert list(rows(large, tmp_path)[0].variants) == ["a backbone of 1,200,000 parameters"]


@pytest.mark.parametrize("typed", ["hardware.token_budget=64", "backbone.dtype=bf16", "name=x"])
def test_what_changes_rounding_alone_counts(made, tmp_path, typed):
    put(tmp_path, "RTE", 1, 70.0, typed=(typed,))
    assert rows(made, tmp_path)[0].paper.value == 70.0


def test_a_part_of_a_grid_has_no_final_verdict(made, tmp_path):
    grid = [Rule({}, {"train.lr": [1e-4, 1e-3, 1e-2]})]
    searched = replace(made, grid=grid)
    for number, rate in enumerate(("1e-4", "1e-3", "1e-2"), start=1):
        three(tmp_path, "RTE", 69.0, group=rate, typed=(f"train.lr={rate}",))
        row = rows(searched, tmp_path)[0]
        assert (row.paper.searched, row.paper.planned) == (number, 3)
        if number < 3:
            assert row.verdict == "not final"
            assert row.why == f"within with {number} of 3 configurations; dev selects among all"
            (cells,) = Shown(searched, [row]).table.rows
            assert cells["Seeds"] == f"3 of 3, best of {number} of 3 configurations on dev"
    assert row.verdict == "within"
    put(tmp_path, "RTE", 1, 99.0, group="5e-5", typed=("train.lr=5e-5",))
    assert list(rows(searched, tmp_path)[0].variants) == ["train.lr=5e-05"]


def test_requests_are_kept_until_a_file_of_options_changes(made, tmp_path, monkeypatch):
    put(tmp_path, "RTE", 1, 70.0)
    rows(made, tmp_path)
    monkeypatch.setattr(requested, "compose", lambda overrides: pytest.fail("composed again"))
    assert rows(made, tmp_path)[0].paper.value == 70.0
    file = tmp_path / ".requested.json"
    file.write_text(file.read_text().replace('"stamp": "', '"stamp": "0'))
    with pytest.raises(pytest.fail.Exception, match="composed again"):
        rows(made, tmp_path)


def test_runs_that_all_failed_are_told(made, tmp_path):
    put(tmp_path, "RTE", 1, 0.0, status="failed")
    row = rows(made, tmp_path)[0]
    assert row.verdict == "not comparable" and row.why.startswith("all 1 runs failed: ")
