"""Suggest the closest word: the `did you mean` of messages."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else ""


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Return the message for a word that is not one of the known words."""
    names = sorted(known)
    return f"{what}: unknown{did_you_mean(word, names) or '.'} Allowed: {', '.join(names)}."
