"""Verbalizers: the words of each label, and the rule for words of several tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from ptrun.errors import UserError
from ptrun.pattern.spelling import Spelling

Rule = Literal["single", "first", "mean"]
Tokens = tuple[tuple[int, ...], ...]

_QUOTE = (
    "YAML reads a bare yes, no, true or false as a truth value, and a bare 1 as a number; "
    'write it in quotes: "yes".'
)


@dataclass(frozen=True)
class Verbalizer:
    """Maps labels to words; the score of a label is the mean over its words.

    Args:
        words: one or more words for each label, in the order in which patterns write them out.
        rule: `single` refuses words of several tokens; `first` takes the first token of each;
            `mean` takes the mean over a word's tokens, each read at its own mask.
        glued: whether no space comes before the words, as before PPT's option letters.

    Raises:
        UserError: a label or word is no text, a label has no words, or the rule is unknown.
    """

    words: Mapping[str, Sequence[str]]
    rule: Rule = "single"
    glued: bool = False

    def __post_init__(self) -> None:
        if self.rule not in get_args(Rule):
            raise UserError(f"rule is {self.rule!r}; allowed: {', '.join(get_args(Rule))}.")
        if not isinstance(self.words, Mapping) or not self.words:
            raise UserError(f"label words are {self.words!r}; expected label: [word].")
        for label, words in self.words.items():
            _check_words(label, words)

    def check(self, labels: Sequence[str]) -> None:
        """Refuse words for other labels than these."""
        missing = [label for label in labels if label not in self.words]
        extra = [label for label in self.words if label not in labels]
        if missing or extra:
            raise UserError(
                f"label words: missing {_names(missing)}, not a label {_names(extra)}; "
                f"the task has {_names(labels)}."
            )

    def bind(self, tokenizer: Any) -> "LabelTokens":
        """Return the words as a tokenizer's ids."""
        spelling = Spelling(tokenizer)
        ids = {
            label: tuple(self._ids(label, word, spelling, tokenizer) for word in words)
            for label, words in self.words.items()
        }
        _check_collisions(self.words, ids, spelling)
        return LabelTokens(tuple(ids), tuple(ids.values()))

    def _ids(self, label: str, word: str, spelling: Spelling, tokenizer: Any) -> tuple[int, ...]:
        ids = spelling.answer(word, glued=self.glued)
        if not ids or tokenizer.unk_token_id in ids:
            raise UserError(
                f"label {label!r}: this backbone's vocabulary does not know {word!r}; "
                "use another word."
            )
        if self.rule == "single" and len(ids) > 1:
            pieces = " ".join(spelling.tokens(ids))
            raise UserError(
                f"label {label!r}: {word!r} is {len(ids)} tokens ({pieces}), and rule single takes "
                "words of one; use another word, rule: first, or rule: mean with {masks}."
            )
        return tuple(ids[:1] if self.rule == "first" else ids)


class LabelTokens:
    """Label words as token ids.

    Args:
        labels: in order, C of them.
        ids: `ids[label][word]` are its tokens, or the first one under rule `first`.
    """

    def __init__(self, labels: tuple[str, ...], ids: tuple[Tokens, ...]):
        self.labels, self.ids = labels, ids
        labels_terms = [
            [(p, t, 1 / (len(words) * len(word))) for word in words for p, t in enumerate(word)]
            for words in ids
        ]
        most = max(map(len, labels_terms))
        padded = [terms + [(*terms[0][:2], 0.0)] * (most - len(terms)) for terms in labels_terms]
        self._terms = torch.tensor(padded, dtype=torch.float64)
        self._on: dict[torch.device, Sequence[Tensor]] = {}

    @property
    def masks(self) -> int:
        """The number of masks that the longest word needs."""
        return max(len(tokens) for words in self.ids for tokens in words)

    def scores(self, logits: Tensor) -> Tensor:
        """Return label scores `[B, C]` from logits `[B, K, V]` at a row's K masks, in fp32.

        A label's score is the mean over its words of the mean over their tokens, added up in order:
        `index_add` has no order on CUDA.
        """
        places, tokens, weights = self._by_device(logits.device)
        read = logits[:, places, tokens].float()  # [B, C, M], M the most terms of a label
        terms = (read * weights).masked_fill(weights == 0, 0.0).unbind(dim=-1)
        return sum(terms[1:], start=terms[0])

    def _by_device(self, device: torch.device) -> Sequence[Tensor]:
        """Return `[C, M]` mask, token and weight of each term; a label with fewer has weights 0."""
        if device not in self._on:
            places, tokens, weights = (tensor.contiguous() for tensor in self._terms.unbind(dim=-1))
            terms = [places.long(), tokens.long(), weights.float()]
            if device.type == "cuda":  # the host need not wait for pinned memory
                terms = [tensor.pin_memory() for tensor in terms]
            self._on[device] = [tensor.to(device, non_blocking=True) for tensor in terms]
        return self._on[device]


def _check_words(label: Any, words: Any) -> None:
    if isinstance(words, str) or not isinstance(words, Sequence) or not words:
        raise UserError(
            f'label {label!r}: words are {words!r}; expected a list such as ["great", "good"].'
        )
    for text in (label, *words):
        if not isinstance(text, str):
            raise UserError(f"label {label!r}: {text!r} is no text. {_QUOTE}")
        if not text.strip():
            raise UserError(f"label {label!r}: a word is empty.")


def _check_collisions(
    words: Mapping[str, Sequence[str]], ids: Mapping[str, Tokens], spelling: Spelling
) -> None:
    seen: dict[tuple[int, ...], tuple[str, str]] = {}
    for label, spelled in ids.items():
        for word, tokens in zip(words[label], spelled, strict=True):
            if tokens in seen:
                other, taken = seen[tokens]
                pieces = " ".join(spelling.tokens(list(tokens)))
                raise UserError(
                    f"label words collide: {taken!r} of {other!r} and {word!r} of {label!r} are "
                    f"both read as {pieces}; use other words, or a rule that reads more tokens."
                )
            seen[tokens] = (label, word)


def _names(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels)) or "none"
