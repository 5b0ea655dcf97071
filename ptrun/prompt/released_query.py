"""The query about a fact as P-tuning's released code writes it with a manual template.

THUDM/P-tuning 9857868, LAMA/p_tuning/modeling.py, `get_query` with `use_original_template`: the
template begins with a space, which RoBERTa's and GPT-2's tokens show. A masked backbone reads it
whole. For a left-to-right one it is cut at `[Y]`, tokenized with special tokens, and read at its
last token. Differences there to the text before the object:

- The space before the object stays, as its own token (GPT-2: 220). The object follows with another
  space before it, in training and evaluation.
- Megatron-11B has RoBERTa's tokenizer there, which adds `<s>` and `</s>`: the answer is read after
  `</s>`. Here, any tokenizer without special tokens around a text, but with different ones for its
  beginning and end, gets them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptrun.prompt.encoding import Encoder
from ptrun.prompt.rendering import Piece


def cut_query(encoder: Encoder, tokenizer: Any, pieces: Sequence[Piece], room: int) -> list[int]:
    """Return at most `room` tokens, of which the last is read; the pattern ends in the mask."""
    first, last = _marks(encoder, tokenizer)
    encoded = encoder.encode(_spaced(pieces), room - len(first) - len(last))
    return [*first, *encoded.ids, *last]


def led(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with a space before the first."""
    return [replace(pieces[0], spaced=True), *pieces[1:]]


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with a space before them, and the space before the object as text."""
    if len(pieces) == 1:  # a template that starts with its object; the encoder refuses it
        return list(pieces)
    *text, hole = led(pieces)
    end = [replace(hole, kind="literal", text=" ", spaced=False)] if hole.spaced else []
    return [*text, *end, hole]


def _marks(encoder: Encoder, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens to put before and after a text."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if encoder.framed or first is None or last is None or first == last:
        return [], []
    return [first], [last]
