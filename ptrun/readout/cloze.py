"""The base of read-outs through the language-model head: a pattern and the positions to read.

| family          | position that is read                                                      |
|-----------------|----------------------------------------------------------------------------|
| masked          | the mask tokens                                                            |
| causal          | the last token before the answer                                           |
| encoder-decoder | in the decoder: after the sentinel that marks the gap in the text (PPT     |
|                 | §2), or without a sentinel the decoder's first token (LM-adapted T5)       |
| infilling       | the token that starts the text written in the blank (GLM)                  |
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence, Set
from functools import cached_property
from typing import Any, ClassVar

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.pattern.encoding import Encoded, Encoder
from ptrun.pattern.pattern import PVP
from ptrun.pattern.rendering import Piece, one_segment, separated
from ptrun.pattern.spelling import answer_end, mask_ids
from ptrun.readout.base import Features, TokenRow, WordReader
from ptrun.readout.head import row_limit
from ptrun.readout.languages import answer_frame, tokenizer_of
from ptrun.task.dataset import Task
from ptrun.task.multilabel import NONE
from ptrun.types import Example

_MOST_OPTIONS = 16  # of a list with signs


class Cloze(WordReader):
    """A pattern rendered for a backbone; it learns nothing.

    Args:
        pvp: the pattern, with its verbalizer if it has one.
        options: the keys of `readout`, of which `sentinel` and `literal_sep` are read here: see
            `ptrun.readout.verbalizer.VerbalizerReading`.
    """

    keys: ClassVar[Set[str]] = frozenset()
    """The keys of `readout` that it has besides `pattern`."""

    def __init__(self, backbone: PretrainedBackbone, task: Task, pvp: PVP, options: Any):
        self.backbone, self.task, self.pvp, self.options = backbone, task, pvp, options
        self.pattern: Any = pvp.pattern if pvp else None  # a conversation has none
        self.class_weights = getattr(options, "class_weights", "none")
        self.literal_sep = getattr(options, "literal_sep", False)
        self.infills = backbone.architecture.has_blank
        marks = backbone.architecture.has_decoder and getattr(options, "sentinel", False)
        self.marked = marks and pvp.pattern.masks > 0
        self.kept: Counter[int] = Counter()  # rows by the number of these texts before them

    @property
    def decodes(self) -> bool:
        """Whether the answer is written separately from the text."""
        return self.backbone.architecture.writes_apart

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder of pieces into rows; a refusal names what the tokenizer lacks for them."""
        tokenizer = tokenizer_of(self.backbone, self.task)
        if self.marked and not mask_ids(tokenizer, 1)[0]:
            raise UserError(
                f"backbone={self.backbone.name}: its tokenizer has no sentinel such as "
                "<extra_id_0>, which marks the gap in the text.\nUse the tokenizer of its source, "
                "or type readout.sentinel=false: the answer starts the decoder's text."
            )
        if self.infills and (tokenizer.mask_token is None or answer_end(tokenizer) is None):
            raise UserError(
                f"backbone={self.backbone.name}: its tokenizer lacks a mask token, "
                "<|startofpiece|> or <|endofpiece|>, which a blank infiller\nneeds; use the "
                "tokenizer that ptrun import glm writes."
            )
        return Encoder(tokenizer, left_to_right=self.backbone.architecture.left_to_right)

    @cached_property
    def end(self) -> int | None:
        """The token that ends a blank infiller's answer; None for other families."""
        return answer_end(self.backbone.tokenizer()) if self.infills else None

    @cached_property
    def answer_frame(self) -> tuple[list[int], list[int]]:
        """What the decoder reads before an answer, and what is learned after its end."""
        return answer_frame(self.backbone, self.task)

    def encode(self, examples: Sequence[Example], room: int) -> list[Features]:
        """Return the features of each example."""
        return [self._features(example, room) for example in examples]

    @abstractmethod
    def _features(self, example: Example, room: int) -> Features:
        """Return the rows and targets of an example."""

    def pieces(self, example: Example, *, gap: bool = False) -> list[Piece]:
        """Return the rendered pattern, without its masks if there is no sentinel and no `gap`.

        A blank infiller gets one segment (GLM's cloze inputs have no [SEP]).
        """
        pieces = self.pvp.render(example.fields)
        if self.infills:
            return one_segment(pieces)
        if self.literal_sep:
            return separated(pieces)
        if self.decodes and not (self.marked or gap):
            return [piece for piece in pieces if piece.kind not in ("mask", "masks")]
        return pieces

    def demonstration(self, example: Example) -> list[int]:
        """Return the tokens of an example with its answer in the gap, or behind the text."""
        answer: Any = example.target
        pieces, spaced = self.pieces(example, gap=True), True
        holes = [i for i, piece in enumerate(pieces) if piece.kind in ("mask", "masks")]
        at = holes[0] if holes else len(pieces)
        if verbalizer := self.pvp.verbalizer(_MOST_OPTIONS):
            labels = answer if isinstance(answer, list) else [str(answer)]
            answer = ", ".join(verbalizer.words[label][0] for label in labels or [NONE])
            spaced = not verbalizer.glued
        elif self.task.answer == "option":
            answer = self.pvp.pattern.filtered("options", example.fields["options"][answer])
        elif self.task.fills_gap:
            answer = example.fields["span1_text"]  # of training examples: the others are not read
        elif self.writes and holes:
            spaced = pieces[at].spaced
        text = str(answer[0] if isinstance(answer, list) else answer).strip()
        spaced &= self.encoder.spelling.style != "plain"
        segment = (pieces[at] if holes else pieces[-1]).segment
        piece = Piece("literal", text, spaced=spaced, segment=segment)
        rest = [piece for i, piece in enumerate(pieces) if i > at and i not in holes]
        return self.encoder.block([*pieces[:at], piece, *rest])

    def doubt(self, examples: Sequence[Features]) -> str | None:
        """Return a warning that counts the rows before which not all texts fit."""
        most, rows = len(self.texts_before), self.kept.total()
        said = f"of {rows:,} rows have no room for all {most} demonstrations, one for"
        if not (short := rows - self.kept[most]):
            return None
        return f"{short:,} {said} {min(self.kept)}; type a smaller method.examples"

    def encoded(
        self, pieces: Sequence[Piece], room: int, masks: int = 1, answer: int = 0
    ) -> Encoded:
        """Return a row behind the nearest texts that fit; `answer` tokens are to follow."""

        def before(size: int) -> list[int]:
            left, ids, count = max(room, self.backbone.shape.positions) - answer, list[int](), 0
            for text in reversed(self.texts_before):
                if len(text) + len(ids) + size <= left:
                    ids, count = [*text, *ids], count + 1
            self.kept[count] += 1
            return ids

        limit = row_limit(self.task, room) - answer
        return self.encoder.encode(pieces, limit, masks, self.pvp.shorten, before)

    def row(self, pieces: Sequence[Piece], room: int, masks: int = 1, answer: int = 0) -> TokenRow:
        """Return the row of an example, read where its answer starts; `answer` as in `encoded`.

        An encoder-decoder is read in the decoder: at the token before the sentinel, which predicts
        it, and at the sentinel; or without one at the last token before the answer. A blank
        infiller is read in the text that it writes, and the type of the blank is 1.
        """
        encoded = self.encoded(pieces, room, masks, answer)
        if not self.decodes:
            return TokenRow(encoded.ids, encoded.types, encoded.masks, encoded.softs)
        before, _ = self.answer_frame
        marks = [encoded.ids[encoded.masks[0]]] if self.marked else []
        types = (
            [int(i == encoded.masks[-1]) for i in range(len(encoded.ids))] if self.infills else None
        )
        begin, reads = [*before, *marks], range(len(before) - 1, len(before) + len(marks))
        return TokenRow(encoded.ids, types, list(reads), encoded.softs, begin)
