"""The query about a fact as P-tuning's released code writes it for left-to-right backbones.

THUDM/P-tuning 9857868, LAMA/p_tuning/modeling.py, `get_query` with `use_original_template`: the
template is cut at `[Y]`, a space is put before it, and the tokenizer is given all of it, special
tokens added; the answer is read at the last token. So a backbone reads something else than the text
before the object:

- a space stands before the first word, too;
- the space before the object stays, a token of its own (GPT-2: 220), and the object is learned and
  looked for with another before it;
- Megatron-11B has RoBERTa's tokenizer there, which sets `<s>` and `</s>` around a text: the answer
  is read after the end of the text.

As RoBERTa's is taken any tokenizer that sets nothing around a text here, but has a mark for its
beginning and another for its end.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ptrun.prompt.encoding import Encoder
from ptrun.prompt.rendering import Piece
from ptrun.readout.base import Row


class ReleasedQuery:
    """Lays out rows of one tokenizer as the released code does; the pattern ends in the mask."""

    def __init__(self, encoder: Encoder, tokenizer: Any):
        self._encoder = encoder
        self._marks = _marks(encoder, tokenizer)

    def row(self, pieces: Sequence[Piece], room: int) -> Row:
        """Return the row of at most `room` tokens, read at its last."""
        first, last = self._marks
        made = self._encoder.encode(_spaced(pieces), room - len(first) - len(last))
        ids = [*first, *made.ids, *last]
        return Row(ids, reads=[len(ids) - 1])


def _spaced(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with a space before them, and the one before the object as text."""
    if len(pieces) == 1:  # a template that begins with its object; the encoder refuses it
        return list(pieces)
    first, *between, hole = pieces
    end = [replace(hole, kind="literal", text=" ", spaced=False)] if hole.spaced else []
    return [replace(first, spaced=True), *between, *end, hole]


def _marks(encoder: Encoder, tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return what is to stand around a text that the tokenizer sets nothing around."""
    first, last = tokenizer.bos_token_id, tokenizer.eos_token_id
    if encoder.framed or first is None or last is None or first == last:
        return [], []
    return [first], [last]
