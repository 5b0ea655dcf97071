"""Turns the log-odds of tokens into answers, by the rules of DPT's released code (QUOREF)."""

from collections.abc import Iterator, Sequence

from ptrun.readout.multispan.passage import Passage


def answers(passage: Passage, odds: Sequence[float], least: float) -> list[str]:
    """Return the texts whose tokens have log-odds above `least`, at least one text.

    A word is taken if any of its tokens is; neighbouring words are one answer. If no token is, the
    answer is the word of the likeliest token.
    """
    taken = {word for word, own in zip(passage.words, odds, strict=True) if own > least}
    if not taken and odds:
        taken = {passage.words[max(range(len(odds)), key=odds.__getitem__)]}
    return distinct([passage.between(*run) for run in _runs(sorted(taken))])


def distinct(texts: Sequence[str]) -> list[str]:
    """Drop texts that equal an earlier one but for case, and texts that are part of another."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(text.lower(), text)
    return [text for low, text in first.items() if not any(_part(low, other) for other in first)]


def _part(text: str, whole: str) -> bool:
    """Return whether a text is a word or stem of another, or strictly inside it."""
    if text == whole:
        return False
    if any(own in whole for own in (f"{text} ", f" {text}", f"{text}s", f"{text}n")):
        return True
    return text in whole and not whole.startswith(text) and not whole.endswith(text)


def _runs(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers."""
    begin = 0
    for k in range(1, len(words) + 1):
        if k == len(words) or words[k] > words[k - 1] + 1:
            yield words[begin], words[k - 1]
            begin = k
