"""Messages: a text of somebody else cannot move the cursor, hide a line or name the window."""

import logging

import pytest

from ptrun.errors import UserError, all_readable, readable, visible
from ptrun.hardware.environment import log_to_stderr, print_error

ODD = "a\x1b]0;owned\x07\x9b31m\u202e\x85\tb\rc"
WRITTEN = r"a\x1b]0;owned\x07\x9b31m\u202e\x85\tb\rc"


def test_an_error_has_its_lines_and_no_control_characters(capsys):
    print_error(UserError(f"{ODD}\nsecond line"))
    assert capsys.readouterr().err == f"ptrun: {WRITTEN}\nsecond line\n"


@pytest.mark.usefixtures("same_logging")
def test_a_log_message_has_no_control_characters(capsys):
    logging.getLogger("ptrun").handlers.clear()
    log_to_stderr()
    logging.getLogger("ptrun.task").warning("labels: %s\nnext", ODD)
    assert capsys.readouterr().err == f"labels: {WRITTEN}\nnext\n"


def test_texts_of_somebody_else_keep_their_form():
    assert visible(f"{ODD}\n") == f"{WRITTEN}\\n" and readable(f"{ODD}\né") == f"{WRITTEN}\né"
    assert visible("plain é 电 🙂 [red]") == "plain é 电 🙂 [red]"
    content = {ODD: [ODD, 1, None, {"k": 1.5, "b": True}], "n": {}}
    assert all_readable(content) == {WRITTEN: [WRITTEN, 1, None, {"k": 1.5, "b": True}], "n": {}}
