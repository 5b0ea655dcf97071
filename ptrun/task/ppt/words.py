"""Words of a text in any script, as far as lengths go: a Chinese character is a word of its own.

PPT's code counts and cuts in tokens of its model. A task knows no tokenizer, so words stand for
them here; what is still too long is cut to tokens where rows are made, the longest text first.
"""

import re
from functools import lru_cache

_OWN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD = re.compile(rf"{_OWN.pattern}|[^\s{_OWN.pattern[1:]}+")


def has_words(text: str, least: int) -> bool:
    """Return whether a text has this many words."""
    if _is_spaced(text):
        return len(text.split(None, least)) >= least
    return any(True for number, _ in enumerate(_WORD.finditer(text), start=1) if number == least)


def cut(text: str, most: int) -> str:
    """Return a text's first words."""
    if len(text) <= most:  # a word has a character at least
        return text
    if _is_spaced(text):
        rest = text.split(None, most)[most:]
        return text[: -len(rest[0])].rstrip() if rest else text
    found = _first(most).match(text)
    assert found is not None  # it matches the empty text too
    return found.group().rstrip()


def _is_spaced(text: str) -> bool:
    """Return whether spaces alone part words, as is found fast."""
    return text.isascii() or not _OWN.search(text)


@lru_cache
def _first(most: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*(?:{_WORD.pattern})){{0,{most}}}+")
