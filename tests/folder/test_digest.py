"""Digests: equal content has an equal one, and every damaged line is noticed."""

import json

import pytest

from ptrun.folder import digest

ROW = {"event": "step", "step": 3, "loss": 0.1 + 0.2, "text": "é\u2028\x85", "nan": float("nan")}


def test_a_line_gives_its_row_back():
    text = digest.line(ROW)
    assert text.count("\n") == 1 and str(digest.row(text)) == str(ROW)


def test_every_bit_of_a_line_counts():
    text = digest.line({**ROW, "text": "film", "nan": 0}).encode().strip()
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            read = flipped.decode("utf-8", "replace")
            if _equal(read, text.decode()):
                continue
            with pytest.raises(ValueError, match=r"."):
                digest.row(read)


def _equal(text, whole):
    """Return whether only white space between tokens was hit."""
    try:
        return json.loads(text) == json.loads(whole)
    except ValueError:
        return False


@pytest.mark.parametrize("text", ["", "[1]", '{"a": ', "[" * 100_000, '{"a": 1, "digest": "0"}'])
def test_what_is_no_row_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        digest.row(text)


def test_the_order_of_keys_is_free():
    assert digest.of_plain({"a": 1, "b": [2.5]}) == digest.of_plain({"b": [2.5], "a": 1})
    assert digest.of_plain({"a": 65.0}) != digest.of_plain({"a": 95.0})
