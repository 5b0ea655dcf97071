"""The query about a fact as P-tuning's released code writes it for left-to-right backbones.

THUDM/P-tuning 9857868, LAMA/p_tuning/modeling.py, `get_query` with `use_original_template`: the
template is cut at `[Y]` and a space is put before it. It is tokenized whole, with special tokens,
and read at its last token. Compared with the text before the object:

- A space stands before the first word, too.
- The space before the object stays, as its own token (GPT-2: 220). The object follows with another
  space before it, in training and evaluation.
- Megatron-11B has RoBERTa's tokenizer there, which adds `<s>` and `</s>`: the answer is read after
  the end of the text.

Here, a tokenizer counts as RoBERTa's if it adds no special tokens but has different tokens for the
beginning and the end of a text.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptrun.prompt.encoding import Encoder
from ptrun.prompt.rendering import Piece
from ptrun.readout.base import Row


class ReleasedQuery:
    """Lays out rows as the released code does; the pattern ends in the mask."""

    def __init__(self, encoder: Encoder, tokenizer: Any):
        self._encoder = encoder
        self._marks = _marks(encoder, tokenizer)

    def row(self, pieces: Sequence[Piece], room: int) -> Row:
        """Return a row of at most `room` tokens, read at its last."""
        first, last = self._marks
        encoded = self._encoder.encode(_spaced(pieces), room - len(first) - len(last))
        ids = [*first, *encoded.ids, *last]
        return Row(ids, reads=[len(ids) - 1])


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with a space before them, and the space before the object as text."""
    if len(pieces) == 1:  # a template that starts with its object; the encoder refuses it
        return list(pieces)
    first, *between, hole = pieces
    end = [replace(hole, kind="literal", text=" ", spaced=False)] if hole.spaced else []
    return [replace(first, spaced=True), *between, *end, hole]


def _marks(encoder: Encoder, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens to put before and after a text."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if encoder.framed or first is None or last is None or first == last:
        return [], []
    return [first], [last]
