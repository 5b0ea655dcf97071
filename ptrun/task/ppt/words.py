"""Words of a text in any script, for lengths; a Chinese or Japanese character is one word.

PPT's code counts and cuts in tokens of its model. A task has no tokenizer and uses words instead.
The read-out later cuts the rows to tokens, the longest text first.
"""

import re
from functools import lru_cache

_CHARACTER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD = re.compile(rf"{_CHARACTER.pattern}|[^\s{_CHARACTER.pattern[1:]}+")


def has_words(text: str, least: int) -> bool:
    """Return whether a text has at least this many words."""
    if _is_spaced(text):
        return len(text.split(None, least)) >= least
    return any(True for number, _ in enumerate(_WORD.finditer(text), start=1) if number == least)


def cut(text: str, most: int) -> str:
    """Return the first words of a text."""
    if len(text) <= most:  # a word has at least one character
        return text
    if _is_spaced(text):
        rest = text.split(None, most)[most:]
        return text[: -len(rest[0])].rstrip() if rest else text
    start = _first(most).match(text)
    assert start is not None  # the pattern matches the empty text too
    return start.group().rstrip()


def _is_spaced(text: str) -> bool:
    """Return whether only spaces separate words; a fast test."""
    return text.isascii() or not _CHARACTER.search(text)


@lru_cache
def _first(most: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*(?:{_WORD.pattern})){{0,{most}}}+")
