"""The table of results in every width, as CSV, Markdown and HTML, and in Python."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ptrun.command.report import main
from ptrun.errors import UserError
from ptrun.folder.result import write
from ptrun.reporting.table import of_runs
from tests.runs.test_store import outcome

METHODS = ("ptuning_v2", "prompt_tuning")


def run(method, seed):
    names = {"task": "pocket_sentiment", "method": method, "backbone": "bert_base_uncased"}
    names |= {"setting": "few_shot_32", "protocol": "honest"}
    metrics = {"dev": {"f1": 50.0 + seed}, "test": {"f1": 40.0 + seed}}
    return outcome(run_id=f"{method}{seed}", group=method, seed=seed, names=names, metrics=metrics)


RUNS = {Path(f"{method}{seed}"): run(method, seed) for method in METHODS for seed in (1, 2, 3)}


@pytest.fixture
def results():
    return of_runs(RUNS, "outputs")


def printed(results, width):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(results)
    return out.getvalue()


@pytest.mark.parametrize("width", [200, 100, 80, 60, 40])
def test_task_method_and_scores_are_whole_in_any_width(results, width):
    text = printed(results, width)
    assert max(map(len, text.splitlines())) <= width
    for word in ("pocket_sentiment", *METHODS, "52.00 ± 1.00", "42.00 ± 1.00"):
        assert word in text
    assert "bert_base_uncased" in text and "few_shot_32" in text


def test_what_all_rows_have_in_common_is_said_once_where_it_is_narrow(results):
    wide, narrow = printed(results, 200), printed(results, 80)
    assert wide.count("few_shot_32") == 2
    assert "backbone bert_base_uncased · setting few_shot_32 · protocol honest" in narrow
    assert narrow.count("few_shot_32") == 1 and narrow.count("pocket_sentiment") == 2


def test_rows_are_numbers(results):
    assert len(results) == 2 and list(results) == results.rows
    row = next(row for row in results if row["method"] == "ptuning_v2")
    assert list(row) == results.columns
    assert (row["dev"], row["test"], row["n"], row["failed"]) == (52.0, 42.0, 3, 0)
    assert row["test_std"] == pytest.approx(1.0)
    assert "42.00 ± 1.00" in str(results)


def test_a_notebook_gets_a_table(results):
    assert results._repr_html_().count("<tr>") == 3


@pytest.fixture
def folder(tmp_path):
    for place, own in RUNS.items():
        (tmp_path / "outputs" / place).mkdir(parents=True)
        write(tmp_path / "outputs" / place, own)
    return tmp_path / "outputs"


def test_the_command_writes_csv_and_prints_markdown(folder, tmp_path, capsys):
    main([str(folder), "--csv", str(tmp_path / "a.csv")])
    assert capsys.readouterr().out == ""
    main([str(folder), "--csv", "-"])
    text = capsys.readouterr().out
    assert (tmp_path / "a.csv").read_text() == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["method"] for row in rows] == sorted(METHODS) and rows[0]["test"] == "42.0"
    main([str(folder), "--markdown"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| task | method |") and lines[1].endswith("---: |")
    assert lines[2].split("|")[2].strip() == "prompt_tuning"


LABELLED = {
    "scores": {
        "up": {"precision": 50.0, "recall": 100.0, "f1": 66.7, "count": 2},
        "down": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 2},
    },
    "confusion": {"up": {"up": 2}, "down": {"up": 1, "left": 1}},
}


def test_a_row_for_each_label_has_its_scores_and_what_it_is_taken_for():
    runs = {Path(str(seed)): replace(run("idpg", seed), by_label=LABELLED) for seed in (1, 2)}
    found = of_runs(runs, "outputs", labels=True)
    up, down = found
    assert (up["label"], up["precision"], up["recall"], up["f1_std"]) == ("up", 50.0, 100.0, 0.0)
    assert (up["count"], up["n"], up["read_as"]) == (2, 2, {"up": 4})
    assert found.printed.rows[1]["read as"] == "left 2, up 2"
    assert down["read_as"] == {"up": 2, "left": 2}
    assert "66.70 ± 0.00" in printed(found, 80) and "left 2, up 2" in printed(found, 200)
    assert "read as left 2, up 2" in printed(found, 60)  # names alone could be labels


def test_what_runs_differ_in_is_shown_as_it_is_typed():
    def own(value):
        config = {"train": {"max_steps": value, "drop_last": value is None}}
        return replace(run("idpg", 1), group=f"g{value}", run_id=f"r{value}", config=config)

    found = of_runs({Path(str(value)): own(value) for value in (None, 5)}, "outputs")
    shown = {row["differs in"] for row in found.printed.rows}
    assert shown == {
        "train.max_steps=null train.drop_last=true",
        "train.max_steps=5 train.drop_last=false",
    }


def test_runs_without_labels_are_told_apart():
    with pytest.raises(UserError, match="no run has scores of labels"):
        of_runs(RUNS, "outputs", labels=True)
