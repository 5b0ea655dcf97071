"""Intervals and paired tests of a comparison, against Student's tables and by hand."""

import json
import math
import statistics

import pytest
from scipy import stats

from ptrun.folder.find import RunFolder
from ptrun.metrics import holm, student_limit, student_p
from ptrun.reporting.comparison import interval, paired, pareto
from tests.papers.test_statistics import STUDENT
from tests.runs.test_store import outcome

GOLD = "abba"


@pytest.fixture
def runs(tmp_path):
    """Return a function that writes a run for each row of answers, and returns the folders."""

    def made(name, answers, score=None):
        folders = []
        for seed, row in enumerate(answers, 1):
            right = 100 * statistics.fmean(a == b for a, b in zip(row, GOLD, strict=True))
            metrics = {"dev": {}, "test": {"accuracy": right if score is None else score[seed - 1]}}
            folder = tmp_path / f"{name}{seed}"
            folder.mkdir()
            lines = [{"prediction": a, "target": b} for a, b in zip(row, GOLD, strict=True)]
            (folder / "predictions.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
            run = outcome(seed=seed, metric="accuracy", metrics=metrics)
            folders.append(RunFolder(folder, run))
        return folders

    return made


def test_student_is_that_of_the_tables():
    for freedom, limit in STUDENT.items():
        assert student_limit(freedom) == pytest.approx(limit, abs=6e-4)
        assert student_p(limit, freedom) == pytest.approx(0.05, abs=5e-5)
    assert student_p(1.0, 1) == pytest.approx(0.5)


def test_holm_multiplies_the_least_first():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_an_interval_covers_seeds_and_the_test_sample(runs):
    half, mean = interval(runs("a", ["abba", "abbb", "aaba"]))
    scores = [100, 75, 75]
    by_example = [100, 200 / 3, 100, 200 / 3]
    parts = statistics.variance(scores) / 3, statistics.variance(by_example) / 4
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)
    assert mean == pytest.approx(statistics.fmean(scores))
    assert half == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(sum(parts)), rel=1e-3)


def test_a_metric_that_is_no_mean_has_the_seeds_alone(runs):
    half, mean = interval(runs("a", ["abba", "abbb"], score=[90.0, 80.0]))
    assert (mean, half) == (85.0, pytest.approx(12.706 * math.sqrt(50 / 2), rel=1e-3))
    assert interval(runs("b", ["abba"])) == (None, 100.0)
    assert interval([]) == (None, None)


def test_pairs_are_of_the_same_seeds_and_examples(runs):
    better, worse = runs("a", ["abba", "abba", "abbb"]), runs("b", ["abbb", "abaa", "abbb"])
    gap, p = paired(worse, better)
    gaps, by_example = [-25, -25, 0], [0, 0, -100 / 3, -100 / 3]
    parts = statistics.variance(gaps) / 3, statistics.variance(by_example) / 4
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 3)
    assert gap == pytest.approx(statistics.fmean(gaps))
    assert p == pytest.approx(2 * stats.t.sf(abs(gap) / math.sqrt(sum(parts)), freedom), rel=1e-4)
    assert paired(better, better) == (0.0, 1.0)
    assert paired(better[:2], better) is None and paired(better[:1], better[:1]) is None


def test_the_front_has_no_row_that_another_beats():
    rows = [(90, 100), (80, 10), (79, 20), (95, 1000), (80, 10), (None, 1)]
    points = [{"score": score, "learned": learned} for score, learned in rows]
    assert [point["score"] for point in pareto(points)] == [90, 80, 95, 80]
