"""Texts that follow a grammar: a mask on the scores of each token, computed by llguidance."""

import json
import re
from collections.abc import Sequence
from copy import copy
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from ptrun.backbone.base import moved
from ptrun.errors import UserError

_LIMITS: dict[str, Any] = {
    "max_grammar_size": 50_000, "step_max_items": 10_000, "step_lexer_fuel": 100_000,
    "max_lexer_states": 20_000, "verbose_errors": False,
}  # fmt: skip
"""They bound the time of a mask to a tenth of a second, and that of reading a grammar to one."""
_LETTERS = 120_000
"""Of a grammar."""
_FREE = '%llguidance {"no_forcing": true}\n'
"""The model chooses the tokens of words that have to follow; some tokenizers put a space there."""
_NO_TOKEN = "the vocabulary of the model has no token that can follow."
_FEW = 8  # first tokens that are tried; more than spaces
_PIECE = "▁"  # stands for a space in the tokens of sentencepiece


class GrammarError(UserError):
    """A grammar cannot be followed."""


class Grammar:
    """Leaves a row the tokens with which its text can follow a grammar, or end.

    Args:
        tokenizer: the backbone's.
        ends: tokens that end a text.
        text: the grammar, in the form of llguidance's Lark.

    Raises:
        GrammarError: it is none, is too large, or no token can begin it.

    >>> import torch
    >>> from ptrun.testing import read
    >>> from ptrun.backbone.grammar import Grammar
    >>> tokenizer = read("method=lora", "backbone=pocket_gpt2")[0].backbone.tokenizer()
    >>> grammar = Grammar(tokenizer, [0], 'start: "{}"')
    >>> (grammar([], torch.zeros(2800)) == 0).nonzero().flatten().tolist()
    [91]
    """

    def __init__(self, tokenizer: Any, ends: Sequence[int], text: str):
        self.ends = {*ends}
        self._matcher = _matcher(tokenizer, tuple(ends), text).deep_copy()
        self._read: list[int] = []

    def __call__(self, written: Sequence[int], scores: Tensor) -> Tensor:
        """Return the scores of a next token `[V]`, those that may not follow as -inf.

        `written` is the whole text so far; one that was read further before is read again.
        """
        if self.ends.intersection(written):
            return scores
        if self._read != list(written[: len(self._read)]):
            self._matcher.reset()
            self._read = []
        self._matcher.consume_tokens(list(written[len(self._read) :]))
        self._read = list(written)
        allowed = _allowed(self._matcher)
        mask = torch.zeros(len(scores), dtype=torch.bool)
        count = min(len(allowed), len(scores))
        mask[:count] = allowed[:count]
        return scores.masked_fill(~moved(mask, scores.device), -torch.inf)


def spelled(tokenizer: Any, ends: Sequence[int], text: str) -> str:
    """Return a text as a part of a rule: letters, and the special tokens among them."""
    library = _tokenizer(tokenizer, tuple(ends))
    added = {str(t): i for i, t in tokenizer.added_tokens_decoder.items()}
    special = sorted((t for t, i in added.items() if library.is_special_token(i)), key=len)
    pattern = "|".join(map(re.escape, reversed(special))) or "(?!)"
    parts = filter(None, re.split(f"({pattern})", text))
    return " ".join(f"<[{added[p]}]>" if p in special else json.dumps(p) for p in parts)


@lru_cache(maxsize=32)
def _matcher(tokenizer: Any, ends: tuple[int, ...], text: str) -> Any:
    """Return the state before the first token of a grammar."""
    library = _library()
    if len(text) > _LETTERS:
        raise GrammarError(f"it has {len(text):,} letters; at most {_LETTERS:,}.")
    limits, words = library.LLParserLimits(**_LIMITS), _tokenizer(tokenizer, ends)
    matcher = library.LLMatcher(words, _FREE + text, log_level=0, limits=limits)
    first = _allowed(matcher).nonzero().flatten().tolist()
    if len(first) < _FEW and not any(_goes_on(matcher, token) for token in first):
        raise GrammarError(_NO_TOKEN)
    return matcher


def _goes_on(matcher: Any, token: int) -> bool:
    """Return whether a text may end behind a first token, or another one may follow."""
    after = matcher.deep_copy()
    after.consume_token(token)
    return after.is_accepting() or (any(after.compute_bitmask()) and not after.is_error())


def _allowed(matcher: Any) -> Tensor:
    """Return which tokens may follow, `[V]`; refuse a state that none may follow."""
    bits = matcher.compute_bitmask()
    error = matcher.get_error()
    if "NoExtension" in error or not any(bits):
        raise GrammarError(_NO_TOKEN)
    if error:  # without the place in the grammar, which the client did not write
        said = re.split(r"\n +\d+ \| ", error)[0].rpartition("JSON schema: ")[2]
        raise GrammarError(f"{' '.join(said.split())[:200]}.")
    packed = torch.frombuffer(bytearray(bits), dtype=torch.uint8)
    return (packed[:, None] >> torch.arange(8, dtype=torch.uint8) & 1).bool().flatten()


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        said = "an answer in a form needs llguidance: pip install 'ptrun[structured]'."
        raise UserError(said) from error
    return llguidance


@cache
def _tokenizer(tokenizer: Any, ends: tuple[int, ...]) -> Any:
    """Return a tokenizer as the library reads it."""
    library = _library()
    from tokenizers import decoders

    backend: Any = copy(getattr(tokenizer, "backend_tokenizer", None))
    try:
        backend.no_padding()
        backend.no_truncation()
        if _PIECE in repr(backend.decoder):  # the form of these decoders that the library knows
            parts = [decoders.Replace(_PIECE, " "), decoders.ByteFallback(), decoders.Fuse()]
            backend.decoder = decoders.Sequence(parts)
        return library.LLTokenizer(backend.to_str(), eos_token=list(ends))
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        said = f"the tokenizer of the model cannot follow a grammar ({reason})."
        raise GrammarError(said) from error
