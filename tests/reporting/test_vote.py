"""What the seeds of a cell answer together: scored from their predictions, or refused by reason."""

import json
import re

import pytest

from ptrun.errors import UserError
from ptrun.folder.result import write
from ptrun.metrics import pearson_and_spearman
from ptrun.reporting.table import table, voted
from tests.reporting.test_report import cells_of
from tests.runs.test_store import outcome

GOLD = [*"abba"]
WORDS = [["a", "b"], ["b"]]
ANSWERS = [[*"aabb"], [*"bbbb"], [*"abab"]]  # the majority: a b b b


@pytest.fixture
def seeds(tmp_path):
    """Write one run a row of answers; seeds count from 1, `order` is that of their folders."""

    def put(answers, gold=GOLD, order=None, **changes):
        runs = []
        for number in order or range(len(answers)):
            run = outcome(run_id=f"r{number}", seed=number + 1, metric="accuracy", **changes)
            folder = tmp_path / run.run_id
            folder.mkdir()
            rows = zip(range(len(gold)), answers[number], gold, strict=True)
            lines = [json.dumps({"id": str(i), "prediction": p, "target": t}) for i, p, t in rows]
            (folder / "predictions.jsonl").write_text("\n".join(lines) + "\n")
            write(folder, run)
            runs.append(run)
        return runs, {run.run_id: tmp_path / run.run_id for run in runs}

    return put


def test_the_majority_is_scored(seeds):
    """No seed has more than half right, the majority three quarters."""
    assert voted(*seeds(ANSWERS)) == 75.0


def test_the_score_is_the_tasks_own_metric(seeds):
    """Of answers a b b b with gold a b b a: two hits of b in three, and two of gold."""
    runs, folders = seeds(ANSWERS, config={"task": {"positive": "b"}})
    both = [outcome(**{**vars(run), "metric": "accuracy_f1"}) for run in runs]
    assert voted(both, folders) == pytest.approx((75 + 80) / 2)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_tie_is_the_earliest_seeds_whatever_the_order_of_files(seeds, order):
    assert voted(*seeds([["a"] * 4, ["b"] * 4], ["a", "a", "a", "b"], order)) == 75.0


def test_numbers_are_averaged(seeds):
    gold, answers = [1.0, 2.0, 3.0], [[1.0, 3.0, 2.0], [0.0, 1.0, 5.0]]
    runs, folders = seeds(answers, gold)
    numbers = [outcome(**{**vars(run), "metric": "pearson_spearman"}) for run in runs]
    assert voted(numbers, folders) == pearson_and_spearman([0.5, 2.0, 3.5], gold)


def refused(runs, folders, reason):
    with pytest.raises(UserError, match=f"^{re.escape(reason)}$"):
        voted(runs, folders)


def test_what_cannot_vote_says_why(seeds, tmp_path):
    runs, folders = seeds(ANSWERS)
    refused(runs[:1], folders, "fewer than two seeds finished")
    failed = [outcome(**{**vars(run), "status": "failed"}) for run in runs[1:]]
    refused([runs[0], *failed], folders, "fewer than two seeds finished")
    f1 = [outcome(**{**vars(run), "metric": "f1"}) for run in runs]
    refused(f1, folders, "f1 of x is not computed from one label per example")
    file = tmp_path / "r2" / "predictions.jsonl"
    file.write_text(file.read_text().replace('"id": "3"', '"id": "7"'))
    refused(runs, folders, "seeds 1 and 3 have different test sets")
    file.unlink()
    refused(runs, folders, "r2 has no predictions.jsonl")


def test_labels_of_words_vote_word_by_word_and_tags_of_spans_cannot(seeds):
    """The majority is a b, a: two of three words, more than each seed has."""
    runs, folders = seeds([[["a", "c"], ["c"]], [["c", "b"], ["a"]], [["a", "b"], ["a"]]], WORDS)
    assert voted(runs, folders) == pytest.approx(200 / 3)
    f1 = [outcome(**{**vars(run), "metric": "f1"}) for run in runs]
    refused(f1, folders, "f1 of x is not computed from one label per example")


def test_the_report_shows_the_vote_and_why_there_is_none(seeds, tmp_path):
    changes = {"metrics": {"dev": {}, "test": {"accuracy": 50.0}}}
    seeds(ANSWERS, **changes)
    alone = outcome(run_id="z", group="other", metric="accuracy", **changes)
    (tmp_path / "z").mkdir()
    write(tmp_path / "z", alone)
    shown = table(tmp_path, vote=True)
    assert sorted(cells_of(shown)["vote"]) == ["-", "75.00"]
    assert "no vote: fewer than two seeds finished" in "\n".join(shown.printed.notes)
    assert "vote" not in cells_of(table(tmp_path))
