"""What a pattern may do to a text before it is written: `{hypothesis|strip_end|lower_first}`."""

import string
from collections.abc import Callable, Mapping

_FINAL = string.punctuation + "。，、；：？！…“”‘’）》"  # noqa: RUF001  full-width is meant


def strip_end(text: str) -> str:
    """Return a text without the punctuation it ends with."""
    return text.rstrip().rstrip(_FINAL).rstrip()


def lower_first(text: str) -> str:
    """Return a text whose first letter is small."""
    return text[:1].lower() + text[1:]


def capital(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]


def clause(text: str) -> str:
    """Return a conjunction as it follows a sentence: ` because`, but `, so` (GLM on COPA)."""
    return ", so" if text == "so" else f" {text}"


FILTERS: Mapping[str, Callable[[str], str]] = {
    "strip_end": strip_end,
    "lower_first": lower_first,
    "capital": capital,
    "clause": clause,
}
"""Text to text; on a list of texts, each of them."""
