"""How a tokenizer writes one piece of a row: what a space before it does, and where rows begin.

Three styles, told apart by asking the tokenizer once. `byte`: a space is part of the token after it
(GPT-2, RoBERTa). `sentencepiece`: the first token of a text says that a word begins (T5); a piece
that follows without a space must not say so. `plain`: words have one form (BERT, CPM-2); a space
before a piece is encoded with it, which CPM-2 keeps as a token and BERT drops.
"""

from dataclasses import dataclass
from typing import Any, Literal

Style = Literal["byte", "sentencepiece", "plain"]

_PROBES = ("a", "b")
_ANCHORS = ("☃", "0", "(")  # of which one does not merge with what follows
_PIECE = ("<|startofpiece|>", "<|endofpiece|>")  # around what a blank infiller writes
_SENTINELS = ("<extra_id_{}>", "<s_{}>")
_WORD_START, _SPACE = "▁", "Ġ"


class Spelling:
    """Token ids of pieces and of answers in one tokenizer's way; literals are remembered."""

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self.style: Style = self._find_style()
        self._known: dict[tuple[str, bool, bool], list[int]] = {}

    def ids(self, text: str, *, spaced: bool, opens: bool = False) -> list[int]:
        """Return the ids of a piece; `opens` says that it begins a text."""
        if self.style == "sentencepiece":
            return self.encode(text) if spaced or opens else self._glued(text)
        return self.encode(" " + text if spaced else text)

    def literal(self, text: str, *, spaced: bool, opens: bool = False) -> list[int]:
        """Return the same for a text that comes back row after row."""
        key = (text, spaced, opens)
        if key not in self._known:
            self._known[key] = self.ids(text, spaced=spaced, opens=opens)
        return self._known[key]

    def answer(self, word: str, *, glued: bool = False) -> list[int]:
        """Return the ids of a word in the place of a mask: after a space, or `glued` to it."""
        if self.style == "plain":
            return self.encode(word)
        return self.ids(word, spaced=not glued)

    def tokens(self, ids: list[int]) -> list[str]:
        """Return tokens as the vocabulary writes them."""
        return list(self._tokenizer.convert_ids_to_tokens(ids))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text alone; special tokens written in it are text."""
        given = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=True, verbose=False
        )
        return list(given["input_ids"])

    def _find_style(self) -> Style:
        first = self.tokens(self.encode(_PROBES[0]))[:1]
        if first and first[0].startswith(_WORD_START):
            return "sentencepiece"
        spaced = self.tokens(self.encode(" " + _PROBES[0]))[:1]
        return "byte" if spaced and spaced[0].startswith(_SPACE) else "plain"

    def _glued(self, text: str) -> list[int]:
        """Return the ids of a text that no space precedes, where a text's first word has one."""
        alone = self.encode(text)
        if alone and self.tokens(alone[:1]) == [_WORD_START]:
            return alone[1:]
        for anchor in _ANCHORS:
            head, whole = self.encode(anchor), self.encode(anchor + text)
            if whole[: len(head)] == head:
                return whole[len(head) :]
        return alone


@dataclass(frozen=True)
class Frame:
    """The special tokens of one text or two: `ids[i]` before text i, the last after them all.

    `types` are their segment ids and `text_types` those of the texts, None where there are none.
    """

    ids: list[list[int]]
    types: list[list[int]] | None
    text_types: list[int]

    @property
    def size(self) -> int:
        """How many tokens they are."""
        return sum(len(ids) for ids in self.ids)


def frame(tokenizer: Any, texts: int) -> Frame:
    """Return the special tokens that a tokenizer sets around one text or two."""
    probes = _PROBES[:texts]
    whole = tokenizer(*probes)
    ids, types = list(whole["input_ids"]), whole.get("token_type_ids")
    around, sorts, text_types, at = [], [], [], 0
    for probe in probes:
        inside = list(tokenizer(probe, add_special_tokens=False)["input_ids"])
        start = _find(inside, ids, at)
        around.append(ids[at:start])
        sorts.append(list(types[at:start]) if types is not None else [])
        text_types.append(types[start] if types is not None else 0)
        at = start + len(inside)
    sorts.append(list(types[at:]) if types is not None else [])
    return Frame([*around, ids[at:]], sorts if types is not None else None, text_types)


def _find(inside: list[int], ids: list[int], at: int) -> int:
    for start in range(at, len(ids) - len(inside) + 1):
        if ids[start : start + len(inside)] == inside:
            return start
    raise ValueError(f"a tokenizer changes texts between special tokens: {inside} not in {ids}")


def mask_ids(tokenizer: Any, count: int) -> tuple[list[int], bool]:
    """Return the ids of `count` masks in order, and whether one stands for any number of tokens.

    Sentinels of encoder-decoders stand for spans of any length and are numbered; a mask token
    stands for one token, or in a blank infiller for a span too; no ids: there is neither.
    """
    for name in _SENTINELS:
        ids = tokenizer.convert_tokens_to_ids([name.format(i) for i in range(count)])
        if None not in ids and tokenizer.unk_token_id not in ids:
            return list(ids), True
    if tokenizer.mask_token_id is None or tokenizer.mask_token is None:
        return [], False
    return [tokenizer.mask_token_id] * count, answer_end(tokenizer) is not None


def answer_end(tokenizer: Any) -> int | None:
    """Return the token that ends what is written in a blank (GLM); None for other tokenizers."""
    start, end = tokenizer.convert_tokens_to_ids(list(_PIECE))
    known = None not in (start, end) and start != end
    return int(end) if known else None


def placeholder_id(tokenizer: Any) -> int:
    """Return the id that stands where learned vectors go; never one that means padding."""
    return next((i for i in (tokenizer.unk_token_id, tokenizer.pad_token_id) if i is not None), 0)
