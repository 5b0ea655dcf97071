"""Every published number has a cell with the value that is printed, and every table its script."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml

from ptrun.ledger.experiment import AXES, load, names
from ptrun.ledger.jobs import jobs, parse

SCRIPTS = Path(__file__).parents[2] / "scripts" / "reproduce"
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


def runs(name):
    experiment = load(name)
    return any(
        experiment.reason(cell) is None and experiment.home(cell)[0] == name
        for cell in experiment.cells
    )


def test_every_table_that_can_be_run_has_a_script_and_no_other():
    expected = {f"{name.replace('/', '_')}.sh" for name in names() if runs(name)}
    assert {file.name for file in SCRIPTS.glob("*.sh")} == expected


@pytest.mark.parametrize("name", [name for name in names() if runs(name)])
def test_a_script_checks_first_runs_and_reports(name):
    lines = (SCRIPTS / f"{name.replace('/', '_')}.sh").read_text(encoding="utf-8").splitlines()
    paper, table = name.split("/")
    assert lines[0] == "#!/usr/bin/env bash"
    assert [line for line in lines if line and not line.startswith("#")] == [
        "set -euo pipefail",
        f'ptrun experiment={name} check=true "$@"',
        f'ptrun experiment={name} "$@"',
        f"report=(--paper {paper} --table {table})",
        'for given in "$@"; do',
        '  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi',
        "done",
        'ptrun report "${report[@]}"',
    ]
    assert load(name).title in " ".join(line.lstrip("# ") for line in lines)


@pytest.mark.parametrize("name", [name for name in names() if runs(name)])
def test_a_script_says_what_it_runs_how_and_at_what_cost(name):
    text = (SCRIPTS / f"{name.replace('/', '_')}.sh").read_text(encoding="utf-8")
    told = " ".join(line[1:].strip() for line in text.splitlines() if line.startswith("# "))
    experiment = load(name)
    cells = {job.key for job in jobs(experiment, parse([f"experiment={name}"]))}
    assert " ".join(experiment.protocol.split()).rstrip(".") in told
    assert f"{len(cells)} cells, {len(experiment.seeds)} seeds each." in told
    assert f"GPU hours: {' '.join(experiment.hours.split())}" in told


def test_a_script_reports_of_the_folder_it_wrote_to(tmp_path):
    (tmp_path / "ptrun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "ptrun").chmod(0o755)
    line = [SCRIPTS / "dpt_table1.sh", "seeds=1", "outputs=my runs"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    told = subprocess.run(line, env=path, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "experiment=dpt/table1 check=true seeds=1 outputs=my runs",
        "experiment=dpt/table1 seeds=1 outputs=my runs",
        "report --paper dpt --table table1 --outputs my runs",
    ]
