"""Every published number has a cell with the value that is printed, and every table its cost."""

from collections import Counter

import pytest
import yaml

from ptrun.papers.experiment import AXES, load, names, own_cells

RERUN = "ptuning_v2/readme"  # the authors' own reruns: the column `released` of other tables


def published(shared):
    for file in sorted((shared / "specs" / "tables").glob("*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
        if "paper" in content:  # a table of another kind is no paper's of ours
            yield f"{content['paper']}/{content['table']}", content["rows"]


def printed(row):
    """Return what identifies a printed number; templates are part of a method's name here."""
    axes = [axis for axis in AXES if axis != "method" or "hard_prompt" not in row]
    return (*(str(row[axis]) for axis in axes), row["metric"], str(row["value"]), str(row["std"]))


def known(cell, *, method):
    axes = [axis for axis in AXES if axis != "method" or method]
    return (*(cell.at[axis] for axis in axes), cell.metric, str(cell.value), str(cell.std))


@pytest.mark.shared
def test_every_published_number_has_a_cell(shared):
    count = 0
    for name, rows in published(shared):
        if name != RERUN:
            method = "hard_prompt" not in rows[0]
            cells = Counter(known(cell, method=method) for cell in load(name).cells)
            assert Counter(map(printed, rows)) - cells == Counter(), name
            count += len(rows)
    assert count == 1241


@pytest.mark.shared
def test_reruns_of_released_code_stand_beside_the_paper(shared):
    rows = dict(published(shared))[RERUN]
    cells = [c for name in ("table2", "table3") for c in load(f"ptuning_v2/{name}").cells]
    told = Counter(
        (c.at["backbone"], c.at["task"], c.metric, c.released) for c in cells if c.released
    )
    assert told == Counter((r["backbone"], r["task"], r["metric"], r["value"]) for r in rows)


@pytest.mark.parametrize("name", [name for name in names() if own_cells(load(name))])
def test_a_table_that_can_be_run_says_how_and_at_what_cost(name):
    experiment = load(name)
    assert experiment.title and experiment.protocol and experiment.hours
