"""A paper's table from the command line: checked, tried small, run again, and reported."""

import pytest


@pytest.mark.slow
def test_a_table_is_checked_tried_and_not_counted(ptrun):
    line = ["experiment=ptuning/table1", "+scale=pocket"]
    checked = ptrun(*line, "check=true")
    assert checked.returncode == 0 and "1 of 1 cells can be run" in checked.stdout
    tried = ptrun(*line)
    assert tried.returncode == 0, tried.stderr
    assert "a smoke test: the report does not read these runs" in tried.stdout
    assert "1 run: 1 finished" in tried.stderr
    (result,) = ptrun.results()
    assert result.parts[-7:-3] == ("outputs", "pocket", "ptuning", "table1")
    before = result.read_bytes()
    again = ptrun(*line)
    assert "1 run: 1 finished" in again.stderr and result.read_bytes() == before
    report = ptrun("report", "--paper", "ptuning", "--table", "table1")
    assert report.returncode == 0 and "4 not run" in report.stdout


@pytest.mark.slow
def test_what_fails_is_told_and_the_rest_goes_on(ptrun):
    done = ptrun("experiment=ptuning/table1", "+scale=pocket", "train.max_steps=0")
    assert done.returncode == 1 and "1 refused" in done.stderr + done.stdout
    assert "train.max_steps is 0" in done.stderr and not ptrun.results()
