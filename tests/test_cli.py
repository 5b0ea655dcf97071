"""`ptrun --help` fits a terminal."""

import pytest

from ptrun import cli


def test_the_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli._dispatch(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 100


def test_programs_are_not_looked_for_in_relative_folders():
    """`.` and the empty entry are the current folder, which may be somebody else's."""
    from ptrun.cli import _absolute

    assert _absolute("/usr/bin::.:bin:../x:/bin") == "/usr/bin:/bin"
