"""Spells pieces of a row as a tokenizer does: with or without a space before, at a row's start.

The style is detected once for each tokenizer. `byte`: a space is part of the token after it (GPT-2,
RoBERTa). `sentencepiece`: the first token of a text marks the start of a word (T5), which a piece
without a space before it must not do. `plain`: words have one form (BERT, CPM-2); a space before a
piece is encoded with it, which CPM-2 keeps as a token and BERT drops.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Style = Literal["byte", "sentencepiece", "plain"]

SEPARATOR = "[SEP]"
"""What released codes write between two texts: a special token only where it has this name."""
_PROBES = ("a", "b")
_ANCHORS = ("☃", "0", "(")  # one of them does not merge with the text after it
_PIECE = ("<|startofpiece|>", "<|endofpiece|>")  # around the text that a blank infiller writes
_SENTINELS = ("<extra_id_{}>", "▁<extra_id_{}>", "<s_{}>")  # of T5, mT5 and CPM-2
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # Chinese, Japanese
_WORD_START, _SPACE = "▁", "Ġ"


class Spelling:
    """Token ids of pieces and answers for one tokenizer; those of literals are cached."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        alone, spaced = (self.tokens(self.encode(text))[:1] for text in ("a", " a"))
        self.style: Style = "plain"
        if alone and alone[0].startswith(_WORD_START):
            self.style = "sentencepiece"
        elif spaced and spaced[0].startswith(_SPACE):
            self.style = "byte"
        self.literal = cache(self.ids)  # for text of a pattern, the same in every row

    def ids(self, text: str, *, spaced: bool, opens: bool = False) -> list[int]:
        """Return the ids of a piece; `opens` means that it is the start of a text."""
        if self.style != "sentencepiece":
            return self.encode(" " + text if spaced else text)
        alone = self.encode(text)  # with the space that the tokenizer puts before a text
        if spaced or opens:
            return alone
        if alone and self.tokens(alone[:1]) == [_WORD_START]:
            return alone[1:]
        for anchor in _ANCHORS:
            head, joined = self.encode(anchor), self.encode(anchor + text)
            if joined[: len(head)] == head:
                return joined[len(head) :]
        return alone

    def answer(self, word: str, *, glued: bool = False) -> list[int]:
        """Return the ids of a word in the place of a mask: after a space, or `glued` without.

        A script without spaces has none before a word, unless the vocabulary has the word so.
        """
        if self.style == "plain":
            return self.encode(word)
        ids = self.ids(word, spaced=not glued)
        lone = _UNSPACED.match(word) and self.tokens(ids[:1]) == [_WORD_START]
        return ids[1:] if lone else ids

    def tokens(self, ids: list[int]) -> list[str]:
        """Return tokens as they are in the vocabulary."""
        return list(self._tokenizer.convert_ids_to_tokens(ids))

    def separator(self) -> list[int]:
        """Return the ids of `SEPARATOR` as a word of a text: a special token, or word pieces."""
        text = f" {SEPARATOR}" if self.style == "byte" else SEPARATOR
        return list(self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text alone; names of special tokens in it are plain text."""
        options = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
        return list(self._tokenizer(text, **options)["input_ids"])


@dataclass(frozen=True)
class Frame:
    """The special tokens around one text or two: `ids[i]` before text i, the last at the end.

    `types` are their segment ids, or None; `text_types` are those of the texts.
    """

    ids: list[list[int]]
    types: list[list[int]] | None
    text_types: list[int]

    @property
    def size(self) -> int:
        """The number of tokens."""
        return sum(len(ids) for ids in self.ids)


def frame(tokenizer: Any, texts: int, *, answers: bool = False) -> Frame:
    """Return the special tokens that a tokenizer puts around one text or two, or an answer."""
    probes = _PROBES[:texts]
    row = tokenizer(text_target=probes[0]) if answers else tokenizer(*probes)
    ids = list(row["input_ids"])
    types = row.get("token_type_ids", [0] * len(ids))
    cuts, text_types, at = [], [], 0
    for probe in probes:
        inside = list(tokenizer(probe, add_special_tokens=False)["input_ids"])
        places = (i for i in range(at, len(ids)) if ids[i : i + len(inside)] == inside)
        if (start := next(places, None)) is None:
            raise ValueError(f"the tokenizer changes a text beside special tokens: {inside}, {ids}")
        cuts.append(slice(at, start))
        text_types.append(types[start])
        at = start + len(inside)
    cuts.append(slice(at, None))
    special = [list(types[cut]) for cut in cuts] if "token_type_ids" in row else None
    return Frame([ids[cut] for cut in cuts], special, text_types)


def mask_ids(tokenizer: Any, count: int) -> tuple[list[int], bool]:
    """Return the ids of `count` masks in order, and whether each replaces a span of tokens.

    Sentinels of encoder-decoders are numbered and replace spans of any length. A mask token
    replaces one token, or in a blank infiller a span. Without either there are no ids.
    """
    for name in _SENTINELS:
        ids = tokenizer.convert_tokens_to_ids([name.format(i) for i in range(count)])
        if None not in ids and tokenizer.unk_token_id not in ids:
            return list(ids), True
    if tokenizer.mask_token_id is None or tokenizer.mask_token is None:
        return [], False
    return [tokenizer.mask_token_id] * count, answer_end(tokenizer) is not None


def answer_end(tokenizer: Any) -> int | None:
    """Return the token that ends the text in a blank (GLM); None for other tokenizers."""
    start, end = tokenizer.convert_tokens_to_ids(list(_PIECE))
    has_marks = None not in (start, end) and start != end
    return int(end) if has_marks else None
