"""Values and names from a user's file as an error may show them: short, on one line."""

import difflib
from collections.abc import Iterable
from reprlib import Repr
from typing import Any

_LONGEST = 120
_NAMES = 20


class _Short(Repr):
    """`repr` that never walks far into a value, however large or deep it is."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxlong, self.maxother = 3, 60, 40, 60


_SHORT = _Short()


def shown(value: Any) -> str:
    """Return `repr(value)`, cut to 120 characters."""
    return _cut(_SHORT.repr(value), _LONGEST)


def names(found: Iterable[str]) -> str:
    """Return names with commas between, the first 20 of them, long ones cut."""
    every = [_cut(n if n.isprintable() else repr(n[:30]), 30) for n in found]
    more = f" and {len(every) - _NAMES} more" if len(every) > _NAMES else ""
    return ", ".join(every[:_NAMES]) + more


def near(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the closest known name, or an empty string."""
    close = difflib.get_close_matches(word, [k[:80] for k in known], n=1, cutoff=0.6)
    return f"; did you mean {shown(close[0])}?" if close else ""


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
