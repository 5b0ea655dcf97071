"""scripts/reproduce.sh checks a table, runs it and reports it. ptrun is replaced, or real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce.sh"


def done(folder, *arguments):
    line = [SCRIPT, *arguments]
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(line, env=path, capture_output=True, text=True)


@pytest.fixture
def told(tmp_path):
    """Return a function that gives the lines which the script would have run."""
    (tmp_path / "ptrun").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "ptrun").chmod(0o755)
    return lambda *arguments: done(tmp_path, *arguments).stdout.splitlines()


def test_it_checks_first_runs_and_reports(told):
    assert told("ptuning_v2/figure3", "cell=a b") == [
        "experiment=ptuning_v2/figure3 check=true cell=a b",
        "experiment=ptuning_v2/figure3 cell=a b",
        "report --paper ptuning_v2 --table figure3",
    ]


@pytest.mark.parametrize(("code", "reported"), [(1, True), (130, False)])
def test_runs_that_failed_are_reported_and_a_signal_ends_it(tmp_path, code, reported):
    failing = f'case "$*" in report*|*check=true*) ;; *) exit {code} ;; esac\n'
    (tmp_path / "ptrun").write_text(f'#!/bin/sh\necho "$@"\n{failing}')
    (tmp_path / "ptrun").chmod(0o755)
    run = done(tmp_path, "dpt/table1")
    assert run.returncode == code and ("report --paper dpt" in run.stdout) is reported


def test_nothing_runs_after_a_failed_check(tmp_path):
    (tmp_path / "ptrun").write_text('#!/bin/sh\necho "$@"\nexit 3\n')
    (tmp_path / "ptrun").chmod(0o755)
    run = done(tmp_path, "dpt/table1")
    assert (run.returncode, run.stdout) == (3, "experiment=dpt/table1 check=true\n")


@pytest.mark.parametrize("arguments", [[], ["dpt/nix"], ["seeds=1"]])
def test_an_unknown_table_is_told_with_what_is_allowed(arguments):
    run = done(Path(sys.executable).parent, *arguments)
    assert run.returncode == 1 and not run.stdout
    (line,) = run.stderr.splitlines()
    assert "unknown" in line and "Allowed: dpt/figure2," in line
