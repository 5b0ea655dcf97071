"""A question and its passage in one row, and the tags of the passage's tokens.

    [CLS] question [SEP] passage [SEP]

The passage is cut at the longest input. Every token of a gold span is tagged 1, all others of the
passage 0 (IO tags), with all spans in one tagging. The task has checked the positions of gold
spans, so there is no search. Question and special tokens are not read.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ptrun.prompt.context import after_space
from ptrun.task.extraction import Answer


@dataclass(frozen=True)
class Passage:
    """The positions in a text of the tokens that are read.

    Args:
        text: the whole text, before the cut.
        starts, ends: the characters where each token starts, and before which it ends.
        words: the number of each token's word, from 0.
    """

    text: str
    starts: list[int]
    ends: list[int]
    words: list[int]

    def tags(self, answers: Sequence[Answer]) -> list[int]:
        """Return 1 for each token of a word that overlaps an answer, else 0.

        A handful of QUOREF's answers end inside a word; predictions are whole words.
        """
        inside = {
            word
            for word, start, end in zip(self.words, self.starts, self.ends, strict=True)
            if any(start < a.start + len(a.text) and end > a.start for a in answers)
        }
        return [int(word in inside) for word in self.words]

    def holds(self, answers: Sequence[Answer]) -> bool:
        """Return whether no answer reaches beyond the cut."""
        last = self.ends[-1] if self.ends else 0
        return all(a.start + len(a.text.rstrip()) <= last for a in answers)

    def between(self, first: int, last: int) -> str:
        """Return the text from one word to another, both inclusive."""
        end = len(self.words) - 1 - self.words[::-1].index(last)
        return self.text[self.starts[self.words.index(first)] : self.ends[end]]


def passage_of(rows: Any, i: int, text: str) -> tuple[Passage, list[int]]:
    """Return the passage of a tokenized pair of texts, and its tokens' positions in the row.

    Tokens of spaces alone are left out.
    """
    tokens = list(_placed(rows, i, text))
    places, starts, ends, owners = ([token[part] for token in tokens] for part in range(4))
    words, number = [], -1
    for k, owner in enumerate(owners):
        inside = k > 0 and owner == owners[k - 1] and _within(text, ends[k - 1], starts[k])
        number += not inside
        words.append(number)
    return Passage(text, starts, ends, words), places


def _placed(rows: Any, i: int, text: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield position, first character, the character after the last, and the tokenizer's word."""
    tokens = zip(rows.sequence_ids(i), rows["offset_mapping"][i], rows.word_ids(i), strict=True)
    for place, (side, (start, end), word) in enumerate(tokens):
        bare = after_space(text, start, end) if side == 1 else end
        if bare < end:
            yield place, bare, end, word


def _within(text: str, end: int, start: int) -> bool:
    """Return whether a word continues in the next token: letters, digits and marks touch.

    The tokenizer's words alone do not suffice: some tokenizers have none, some add punctuation.
    """
    if start != end:
        return start < end  # a character of several tokens
    return all(unicodedata.category(c)[0] in "LMN" for c in text[start - 1 : start + 1])
