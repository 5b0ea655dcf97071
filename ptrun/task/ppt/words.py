"""Words of a text in any script, for least lengths; a Chinese or Japanese character is one word.

PPT's code counts tokens of its model. A task has no tokenizer and counts words instead.
"""

import re

_CHARACTER = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_WORD = re.compile(rf"{_CHARACTER.pattern}|[^\s{_CHARACTER.pattern[1:]}+")


def has_words(text: str, least: int) -> bool:
    """Return whether a text has at least this many words."""
    if _is_spaced(text):
        return len(text.split(None, least)) >= least
    return any(True for number, _ in enumerate(_WORD.finditer(text), start=1) if number == least)


def _is_spaced(text: str) -> bool:
    """Return whether only spaces separate words; a fast test."""
    return text.isascii() or not _CHARACTER.search(text)
