"""Filters that change a text before it is rendered: `{hypothesis|strip_end|lower_first}`."""

import string
from collections.abc import Callable, Mapping

_FINAL = string.punctuation + "。，、；：？！…“”‘’）》"  # noqa: RUF001  full-width is meant


def strip_end(text: str) -> str:
    """Return a text without its final punctuation."""
    return text.rstrip().rstrip(_FINAL).rstrip()


def lower_first(text: str) -> str:
    """Return a text with its first letter in lower case."""
    return text[:1].lower() + text[1:]


def capital(text: str) -> str:
    """Return a text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def clause(text: str) -> str:
    """Return a conjunction as it follows a sentence: ` because`, but `, so` (GLM on COPA)."""
    return ", so" if text == "so" else f" {text}"


FILTERS: Mapping[str, Callable[[str], str]] = {
    filter_.__name__: filter_ for filter_ in (strip_end, lower_first, capital, clause)
}
"""Text to text; a list of texts is filtered item by item."""
