"""Messages: a text of somebody else cannot move the cursor, hide a line or name the window."""

import logging

import pytest

from ptrun.errors import UserError
from ptrun.hardware.environment import log_to_stderr, print_error

ODD = "a\x1b]0;owned\x07\x9b31m\u202eb\rc"
WRITTEN = r"a\x1b]0;owned\x07\x9b31m\u202eb\rc"


def test_an_error_has_its_lines_and_no_control_characters(capsys):
    print_error(UserError(f"{ODD}\nsecond line"))
    assert capsys.readouterr().err == f"ptrun: {WRITTEN}\nsecond line\n"


@pytest.mark.usefixtures("same_logging")
def test_a_log_message_has_no_control_characters(capsys):
    logging.getLogger("ptrun").handlers.clear()
    log_to_stderr()
    logging.getLogger("ptrun.task").warning("labels: %s\nnext", ODD)
    assert capsys.readouterr().err == f"labels: {WRITTEN}\nnext\n"
