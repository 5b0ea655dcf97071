"""Values and names from a user's file, short and on one line for error messages."""

import difflib
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

_LONGEST = 120  # characters of a value
_NAMES = 20
_SHORT = Repr()  # fast on large and deep values
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 60, 40, 60


def shown(value: Any) -> str:
    """Return `repr(value)`, cut to 120 characters."""
    return _cut(_SHORT.repr(value), _LONGEST)


def names(listed: Iterable[str]) -> str:
    """Return the first 20 names, separated by commas; long names are cut."""
    every = [_cut(n if n.isprintable() else repr(n[:30]), 30) for n in listed]
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more


def near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the most similar known name, or an empty string."""
    close = difflib.get_close_matches(word, [k[:80] for k in known], n=1, cutoff=0.6)
    return f"; did you mean {shown(close[0])}?" if close else ""


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
