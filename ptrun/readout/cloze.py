"""What read-outs through the language-model head share: a pattern, and where its answer is read.

| family              | the answer is read                                                         |
|---------------------|----------------------------------------------------------------------------|
| masked              | at the mask tokens                                                         |
| causal              | at the last token before the answer                                        |
| encoder-decoder     | in the decoder, after the sentinel that stands in the text (PPT §2); or    |
|                     | without a sentinel at the decoder's first token (LM-adapted T5)            |
| infilling           | at the token that begins what is written in the blank (GLM)                |
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ptrun.backbone.base import BackboneInput, Positions
from ptrun.backbone.family import WRITING
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.prompt.encoding import Encoder
from ptrun.prompt.pvp import PVP
from ptrun.prompt.rendering import Piece
from ptrun.prompt.spelling import answer_end
from ptrun.readout.base import Row
from ptrun.readout.head import decoder_start
from ptrun.task.base import Task
from ptrun.types import Example


class Cloze:
    """A pattern written out for a backbone; it learns nothing.

    Args:
        backbone: one whose head predicts words.
        task: what is answered.
        pvp: the pattern, with its verbalizer if it has one.
        sentinel: of an encoder-decoder: mark the answer's place in the text. A pattern without a
            mask marks none.
    """

    reads_decoder = True

    def __init__(
        self, backbone: PretrainedBackbone, task: Task, pvp: PVP, *, sentinel: bool = True
    ):
        self.backbone, self.task, self.pvp = backbone, task, pvp
        self.marked = sentinel and pvp.pattern.masks > 0 and backbone.family == "seq2seq"

    @property
    def decodes(self) -> bool:
        """Whether the answer is written apart from the text."""
        return self.backbone.family in WRITING

    @cached_property
    def encoder(self) -> Encoder:
        """What makes rows of pieces.

        Raises:
            UserError: a blank infiller's tokenizer has no mark of a blank, or of an answer's end.
        """
        tokenizer = self.backbone.tokenizer()
        if self.backbone.family == "infilling":
            _check_marks(self.backbone.name, tokenizer)
        return Encoder(tokenizer, left_to_right=self.backbone.family == "causal")

    @cached_property
    def end(self) -> int | None:
        """The token that ends what a blank infiller writes; None for other families."""
        infills = self.backbone.family == "infilling"
        return answer_end(self.backbone.tokenizer()) if infills else None

    def room(self, wanted: int) -> int:
        """Return the longest row: what is left of the backbone, or the task's own limit."""
        return min(wanted, self.task.max_tokens or wanted)

    def request(self, inputs: BackboneInput, at: Positions) -> BackboneInput:
        """Request the logits of words."""
        return replace(inputs, logits_at=at)

    def pieces(self, example: Example) -> list[Piece]:
        """Return the pattern with an example's texts; without its masks if there is no sentinel.

        A blank infiller's texts are one (GLM's cloze inputs have no [SEP]).
        """
        pieces = self.pvp.render(example.fields)
        if self.backbone.family == "infilling":
            return _one_text(pieces)
        if self.decodes and not self.marked:
            return [piece for piece in pieces if piece.kind not in ("mask", "masks")]
        return pieces

    def row(self, pieces: Sequence[Piece], room: int, masks: int = 1) -> Row:
        """Return the row of an example, read wherever its answer begins.

        Of an encoder-decoder the reads are the decoder's: the sentinel's place, which predicts the
        sentinel, and the answer's after it; or the answer's alone. A blank infiller's are those of
        what it writes, and the type of the blank is 1.
        """
        made = self.encoder.encode(pieces, self.room(room), masks)
        if not self.decodes:
            return Row(made.ids, made.types, made.masks, made.softs)
        begin = [decoder_start(self.backbone)]
        if self.marked:
            begin.append(made.ids[made.masks[0]])
        infills = self.backbone.family == "infilling"
        types = [int(i == made.masks[-1]) for i in range(len(made.ids))] if infills else None
        return Row(made.ids, types, list(range(len(begin))), made.softs, begin)


def _check_marks(name: str, tokenizer: Any) -> None:
    if tokenizer.mask_token is None or answer_end(tokenizer) is None:
        raise UserError(
            f"backbone={name}: its tokenizer lacks a mask token, <|startofpiece|> or "
            "<|endofpiece|>, which a blank infiller\nwrites with; take the one that ptrun import "
            "glm makes."
        )


def _one_text(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces without a border; a word begins where it was."""
    found: list[Piece] = []
    for piece in pieces:
        opens = bool(found) and piece.segment == 1 and pieces[len(found) - 1].segment == 0
        found.append(replace(piece, segment=0, spaced=piece.spaced or opens))
    return found
