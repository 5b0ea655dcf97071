"""`ptrun --help` fits a terminal."""

import pytest

from ptrun import cli


def test_the_help_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    cli._dispatch(["--help"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 100
