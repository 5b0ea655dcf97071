"""Words of a text in any script, as far as lengths go: a Chinese character is a word of its own.

PPT's code counts and cuts in tokens of its model. A task knows no tokenizer, so words stand for
them here; what is still too long is cut to tokens where rows are made, the longest text first.
"""

import re
from functools import lru_cache

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\s\u3040-\u30ff\u3400-\u9fff]+")


def has_words(text: str, least: int) -> bool:
    """Return whether a text has this many words."""
    if text.isascii():
        return len(text.split(None, least)) >= least
    return any(True for number, _ in enumerate(_WORD.finditer(text), start=1) if number == least)


def cut(text: str, most: int) -> str:
    """Return a text's first words."""
    if len(text) <= most:  # a word has a character at least
        return text
    found = _first(most).match(text)
    assert found is not None  # it matches the empty text too
    return found.group().rstrip()


@lru_cache
def _first(most: int) -> re.Pattern[str]:
    return re.compile(rf"(?:\s*(?:{_WORD.pattern})){{0,{most}}}+")
