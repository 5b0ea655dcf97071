"""What a pattern may do to a text before it is written: `{hypothesis|strip_end|lower_first}`."""

import string
from collections.abc import Callable, Mapping

from ptrun.errors import UserError

_FINAL = string.punctuation + "。，、；：？！…“”‘’）》"  # noqa: RUF001  full-width is meant
_JOINERS = {"cause": "because", "effect": "so"}


def strip_end(text: str) -> str:
    """Return a text without the punctuation it ends with."""
    return text.rstrip().rstrip(_FINAL).rstrip()


def lower_first(text: str) -> str:
    """Return a text whose first letter is small."""
    return text[:1].lower() + text[1:]


def capital(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]


def joiner(text: str) -> str:
    """Return the word that joins a premise to its cause or effect (COPA).

    Raises:
        UserError: the text is neither `cause` nor `effect`.
    """
    if text not in _JOINERS:
        raise UserError(f"filter joiner was given {text!r}; it writes 'cause' and 'effect' only.")
    return _JOINERS[text]


FILTERS: Mapping[str, Callable[[str], str]] = {
    "strip_end": strip_end,
    "lower_first": lower_first,
    "capital": capital,
    "joiner": joiner,
}
"""Text to text; on a list of texts, each of them."""
