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
            if isinstance(words, str) or not isinstance(words, Sequence) or not words:
                raise UserError(
                    f'label {label!r}: words are {words!r}; expected a list such as ["great", '
                    '"good"].'
                )
            for text in (label, *words):
                if not isinstance(text, str):
                    raise UserError(f"label {label!r}: {text!r} is no text. {_QUOTE}")
                if not text.strip():
                    raise UserError(f"label {label!r}: a word is empty.")

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
        owners: dict[tuple[int, ...], tuple[str, str]] = {}
        by_label: dict[str, list[tuple[int, ...]]] = {label: [] for label in self.words}
        for label, words in self.words.items():
            for word in words:
                ids = self._ids(label, word, spelling, tokenizer)
                if ids in owners:
                    other, taken = owners[ids]
                    pieces = " ".join(spelling.tokens(list(ids)))
                    raise UserError(
                        f"label words collide: {taken!r} of {other!r} and {word!r} of {label!r} "
                        f"are both read as {pieces}; use other words, or a rule that reads more "
                        "tokens."
                    )
                owners[ids] = label, word
                by_label[label].append(ids)
        return LabelTokens(tuple(by_label), tuple(map(tuple, by_label.values())))

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
        device = logits.device
        if device not in self._on:  # `[C, M]`; a label with fewer terms than M has weights 0
            parts = [tensor.contiguous() for tensor in self._terms.unbind(dim=-1)]
            parts = [parts[0].long(), parts[1].long(), parts[2].float()]
            if device.type == "cuda":  # the host need not wait for pinned memory
                parts = [tensor.pin_memory() for tensor in parts]
            self._on[device] = [tensor.to(device, non_blocking=True) for tensor in parts]
        places, tokens, weights = self._on[device]
        read = logits[:, places, tokens].float()  # [B, C, M], M the most terms of a label
        terms = (read * weights).masked_fill(weights == 0, 0.0).unbind(dim=-1)
        return sum(terms[1:], start=terms[0])


def _names(labels: Sequence[str]) -> str:
    return ", ".join(map(repr, labels)) or "none"
