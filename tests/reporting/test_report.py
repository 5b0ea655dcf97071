"""Tables over one more key than the seed: mean and std over patterns, and the best on dev."""

import logging
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from ptrun.errors import UserError
from ptrun.folder.result import write
from ptrun.reporting.cells import cells
from ptrun.reporting.table import table
from tests.runs.test_store import outcome


def run(pattern, seed, dev, test, **changes):
    metrics = {"dev": {"f1": dev} if dev is not None else {}, "test": {"f1": test}}
    config = {"method": {"length": 1}, "readout": {"pattern": pattern}, "seed": seed}
    name = f"{pattern}-{seed}-{changes.get('status', '')}"
    return outcome(run_id=name, group=pattern, seed=seed, metrics=metrics, config=config, **changes)


RUNS = [run("a", 1, 50.0, 40.0), run("a", 2, 54.0, 44.0)]
RUNS += [run("b", 1, 60.0, 30.0), run("c", 1, 10.0, 20.0)]


def test_what_else_differs_keeps_rows_apart():
    other = outcome(
        config={"method": {"length": 2}, "readout": {"pattern": "a"}, "seed": 1}, group="z"
    )
    rows = cells([*RUNS, other], "readout.pattern")
    found = [(row.differs, len(row.by_value)) for row in rows]
    assert found == [("method.length=1", 3), ("method.length=2", 1)]


@pytest.fixture
def folder(tmp_path):
    def put(runs):
        for own in runs:
            (tmp_path / own.run_id).mkdir()
            write(tmp_path / own.run_id, own)
        return tmp_path

    return put


def cells_of(shown):
    return {name: [own[name] for own in shown.printed.rows] for name in shown.printed.rows[0]}


def test_the_row_shows_mean_std_over_patterns_and_the_best_on_dev(folder):
    """On test 42, 30 and 20: mean 30.67, std 11.02; b is best on dev, not on test."""
    found = cells_of(table(folder(RUNS), over="readout.pattern"))
    assert found["test"] == ["30.67 ± 11.02"] and found["n"] == ["3"]
    assert found["dev"] == ["40.67 ± 26.86"]
    assert found["best on dev"] == ["30.00 (b)"]


def test_ties_on_dev_are_all_named_and_failures_counted(folder):
    tied = [run("a", 1, 50.0, 40.0), run("b", 1, 50.0, 30.0)]
    failed = run("b", 2, None, 0.0, status="failed")
    found = cells_of(table(folder([*tied, failed]), over="readout.pattern"))
    assert found["best on dev"] == ["35.00 (a, b)"] and found["failed"] == ["1"]


def test_without_dev_nothing_is_best(folder):
    runs = [run("a", 1, None, 40.0), run("b", 1, None, 30.0)]
    found = cells_of(table(folder(runs), over="readout.pattern"))
    assert found["best on dev"] == ["-"] and found["test"] == ["35.00 ± 7.07"]


def test_an_unknown_key_is_refused_with_those_that_differ(folder):
    told = r"--over readout.patern: unknown; did you mean 'readout.pattern'\? Allowed: readout.pat"
    with pytest.raises(UserError, match=told):
        table(folder(RUNS), over="readout.patern")


COLLAPSED = [20.0, 50.9, 90.0, 22.9, 91.0, 19.0, 92.0, 49.1, 50.9, 89.9]


def ten():
    """Return ten seeds' runs, written in another order than theirs."""
    return [run("a", seed, 50.0, COLLAPSED[seed - 1]) for seed in (10, *range(1, 10))]


def test_the_best_3_of_10_ignore_collapsed_seeds_and_the_rest_stands_beside_them(folder):
    found = cells_of(table(folder(ten()), best=3))
    assert found["best 3"] == ["91.00"] and found["n"] == ["10"]
    assert found["test"] == ["57.57 ± 31.02"] and found["min"] == ["19.00"]
    assert found["within 2"] == ["3 of 10"]
    assert found["tests by seed"] == [" ".join(f"{score:.2f}" for score in COLLAPSED)]


def test_too_few_seeds_have_no_mean_of_the_best(folder):
    failed = run("a", 3, None, 0.0, status="failed")
    found = cells_of(table(folder([*ten()[:2], failed]), best=3))
    assert found["best 3"] == ["-"] and found["tests by seed"] == ["20.00 89.90"]
    assert found["failed"] == ["1"] and found["within 2"] == ["1 of 2"]


@pytest.mark.parametrize("keys", [{"best": 0}, {"best": 3, "over": "readout.pattern"}])
def test_the_best_of_no_seeds_or_of_patterns_is_refused(folder, keys):
    with pytest.raises(UserError, match=r"use 1 or more, and leave --over out"):
        table(folder(RUNS), **keys)


def test_missing_seeds_are_named_within_a_task(folder):
    runs = []
    for task, method, seed in [("a", "x", 1), ("a", "x", 2), ("a", "y", 1), ("b", "x", 1)]:
        names = {"task": task, "method": method, "backbone": "m", "setting": "full"}
        own = {"run_id": f"{task}{method}{seed}", "group": task + method, "seed": seed}
        runs.append(outcome(names=names | {"protocol": "honest"}, **own))
    caption = "\n".join(table(folder(runs)).printed.notes)
    assert "missing seeds: 2 of a y m full honest" in caption and caption.count("missing") == 1


def test_trials_of_a_search_are_in_no_table(folder):
    own = run("b", 1, 99.0, 0.0)
    metrics = {"dev": {"f1": 99.0}, "test": {}}
    trial = outcome(run_id="trial", metrics=metrics, config={**own.config, "trial": {}})
    found = cells_of(table(folder([run("a", 2, 54.0, 44.0), trial])))
    assert found["test"] == ["44.00"] and found["n"] == ["1"]


def test_an_edited_result_is_named_and_not_counted(folder, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ptrun"), "propagate", True)
    root = folder(RUNS[:2])
    file = min(root.rglob("result.json"))
    file.write_text(file.read_text().replace('"f1": 40.0', '"f1": 95.0'))
    assert cells_of(table(root))["test"] == ["44.00"]
    assert f"not counted: {file}: damaged (edited" in caplog.text
    for other in root.rglob("result.json"):
        other.write_text("{")
    with pytest.raises(UserError, match=r"no result.json or .*\n.*result.json: damaged"):
        table(root)


def test_names_that_look_like_markup_are_shown_as_they_are(folder):
    names = dict.fromkeys(("task", "method", "backbone", "setting", "protocol"), "[/x][bold]")
    shown = table(folder([replace(RUNS[0], names=names)]))
    console = Console(width=200, file=StringIO())
    console.print(shown)
    assert "[/x][bold]" in console.file.getvalue()


def test_a_copy_of_a_run_is_no_second_seed(folder, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("ptrun"), "propagate", True)
    root = folder(RUNS[:2])
    copy = root / "pilot" / RUNS[0].run_id
    copy.mkdir(parents=True)
    write(copy, RUNS[0])
    shown = cells_of(table(root))
    assert shown["n"] == ["2"] and shown["test"] == ["42.00 ± 2.83"]
    assert "it is counted once" in caplog.text
