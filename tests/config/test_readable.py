"""Texts of somebody else are written so that a terminal obeys nothing in them."""

from ptrun.errors import all_readable, readable, visible

ODD = "a\x1b]0;x\x07\x9b31m\u202e\x85\tb"
WRITTEN = r"a\x1b]0;x\x07\x9b31m\u202e\x85\tb"


def test_control_characters_are_written_out():
    assert visible(f"{ODD}\n") == f"{WRITTEN}\\n" and readable(f"{ODD}\né") == f"{WRITTEN}\né"
    assert visible("plain é 电 🙂 [red]") == "plain é 电 🙂 [red]"


def test_plain_data_keep_their_form():
    content = {ODD: [ODD, 1, None, {"k": 1.5, "b": True}], "n": {}}
    assert all_readable(content) == {WRITTEN: [WRITTEN, 1, None, {"k": 1.5, "b": True}], "n": {}}
