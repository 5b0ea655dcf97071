"""A table of twenty rows in an empty folder: every method trains on it, and the report shows it."""

import json

import pytest

from tests.task.tables import delimited, reviews


@pytest.fixture
def table(ptrun):
    (ptrun.folder / "reviews.csv").write_text(delimited(reviews()))
    return ["task=csv", "task.train=reviews.csv", "task.text=text", "task.label=label"]


@pytest.mark.slow
def test_a_table_of_twenty_rows_trains_evaluates_and_reports(ptrun, table):
    methods = ["fine_tuning", "prompt_tuning", "ptuning_v2"]
    for method in methods:
        done = ptrun(f"method={method}", *table, "train.max_steps=3")
        assert done.returncode == 0, done.stderr
        assert "labels: negative (10), positive (10)" in done.stderr
        assert f"{method} · pocket_bert · csv_reviews" in done.stdout
    results = [json.loads(file.read_text()) for file in ptrun.results()]
    assert [r["manifest"]["data"]["train"]["count"] for r in results] == [12, 12, 12]
    assert all(r["manifest"]["seconds"] < 60 for r in results)
    shown = ptrun("report", "outputs").stdout
    assert all(method in shown for method in methods) and shown.count("csv_reviews") == 3


@pytest.mark.slow
def test_a_pattern_from_a_file_is_shown(ptrun, table):
    words = "words: {negative: [bad], positive: [good]}"
    (ptrun.folder / "p.yaml").write_text(f'pattern: "{{~text}} It was {{mask}}."\n{words}\n')
    for given in ("task.pattern=@p.yaml", 'task.pattern="{~text} It was {mask}."'):
        done = ptrun("check", *table, given)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().splitlines()[-2] == "pvp own"
        assert done.stdout.strip().endswith(". It was [MASK] . [SEP]")


def test_a_table_is_checked_and_takes_settings_that_sample(ptrun, table):
    done = ptrun("check", *table, "setting=k_100", "setting.k=4", "setting.dev=4")
    assert done.returncode == 0, done.stderr
    assert "4 of train" in done.stdout and "4 others of train" in done.stdout
    assert not (ptrun.folder / "outputs").exists()
