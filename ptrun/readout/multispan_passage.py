"""A question and its passage in one row, and which tokens of the passage belong to an answer.

    [CLS] question [SEP] passage [SEP]

The passage is cut once, at the longest input. Every token of a gold span is tagged 1, all others of
the passage 0 (IO tags), all spans in one tagging. The task has checked that gold spans stand where
they say, so none is searched for. Question and special tokens are not read at all.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ptrun.readout.context import after_space
from ptrun.task.extraction import Answer


@dataclass(frozen=True)
class Passage:
    """Where the tokens that are read stand in a text.

    Args:
        text: all of it, also what was cut.
        starts, ends: characters at which each token starts, and before which it ends.
        words: the number of each token's word, from 0 on.
    """

    text: str
    starts: list[int]
    ends: list[int]
    words: list[int]

    def tags(self, answers: Sequence[Answer]) -> list[int]:
        """Return 1 for each token of a word that an answer reaches into, else 0.

        A handful of QUOREF's answers end inside a word; what is read are whole words.
        """
        inside = {
            word
            for word, start, end in zip(self.words, self.starts, self.ends, strict=True)
            if any(start < a.start + len(a.text) and end > a.start for a in answers)
        }
        return [int(word in inside) for word in self.words]

    def holds(self, answers: Sequence[Answer]) -> bool:
        """Return whether no answer reaches into what was cut."""
        last = self.ends[-1] if self.ends else 0
        return all(a.start + len(a.text.rstrip()) <= last for a in answers)

    def between(self, first: int, last: int) -> str:
        """Return the text from one word to another, both included."""
        end = len(self.words) - 1 - self.words[::-1].index(last)
        return self.text[self.starts[self.words.index(first)] : self.ends[end]]


def passage_of(rows: Any, i: int, text: str) -> tuple[Passage, list[int]]:
    """Return the passage of a tokenized pair of texts, and its tokens' positions in the row.

    Tokens that stand for no character but spaces are left out.
    """
    found = list(_placed(rows, i, text))
    starts, ends = [start for _, start, _, _ in found], [end for *_, end, _ in found]
    words, number = [], -1
    for k, (*_, word) in enumerate(found):
        goes_on = k > 0 and word == found[k - 1][3] and _within(text, ends[k - 1], starts[k])
        number += not goes_on
        words.append(number)
    return Passage(text, starts, ends, words), [place for place, *_ in found]


def _placed(rows: Any, i: int, text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield position, first character, the character after the last, and the tokenizer's word."""
    told = zip(rows.sequence_ids(i), rows["offset_mapping"][i], rows.word_ids(i), strict=True)
    for place, (side, (start, end), word) in enumerate(told):
        bare = after_space(text, start, end) if side == 1 else end
        if bare < end:
            yield place, bare, end, word


def _within(text: str, end: int, start: int) -> bool:
    """Return whether a word goes on from a token to the next: letters, digits and marks touch.

    Beside this, words are the tokenizer's: some have none, some count punctuation to them.
    """
    if start != end:
        return start < end  # a character of several tokens
    return all(unicodedata.category(c)[0] in "LMN" for c in text[start - 1 : start + 1])
