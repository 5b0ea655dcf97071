"""From the log-odds of tokens to answers, by the rules of DPT's released code (QUOREF)."""

from collections.abc import Iterator, Sequence

from ptrun.readout.multispan_passage import Passage


def answers(passage: Passage, odds: Sequence[float], least: float) -> list[str]:
    """Return the texts whose tokens' odds are above `least`, at least one text.

    A word is taken whole if any of its tokens is; words side by side are one answer. If there is
    none, it is the word of the likeliest token.
    """
    taken = {word for word, own in zip(passage.words, odds, strict=True) if own > least}
    if not taken and odds:
        taken = {passage.words[max(range(len(odds)), key=odds.__getitem__)]}
    return distinct([passage.between(*run) for run in _runs(sorted(taken))])


def distinct(texts: Sequence[str]) -> list[str]:
    """Return texts without those equal to an earlier one but for case, or part of another one."""
    first: dict[str, str] = {}
    for text in texts:
        first.setdefault(text.lower(), text)
    return [text for low, text in first.items() if not any(_part(low, other) for other in first)]


def _part(text: str, whole: str) -> bool:
    """Return whether a text is part of another as a word, as its stem, or strictly inside it."""
    if text == whole:
        return False
    if any(own in whole for own in (f"{text} ", f" {text}", f"{text}s", f"{text}n")):
        return True
    return text in whole and not whole.startswith(text) and not whole.endswith(text)


def _runs(words: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of numbers that follow on each other."""
    begin = 0
    for k in range(1, len(words) + 1):
        if k == len(words) or words[k] > words[k - 1] + 1:
            yield words[begin], words[k - 1]
            begin = k
