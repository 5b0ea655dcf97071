"""Turns pieces of a pattern into one row of token ids, laid out as the tokenizer does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ptrun.errors import UserError
from ptrun.pattern.rendering import Piece
from ptrun.pattern.spelling import Frame, Spelling, frame, mask_ids

Shorten = Literal["longest", "in_proportion", "last"]
"""Which text of a long row loses tokens: the longest one, each in proportion (PPT's pairs), or the
last one until it is empty, then the one before it (P-tuning's few-shot code)."""


def shorten(lengths: Sequence[int], groups: Sequence[Sequence[int]], excess: int) -> list[int]:
    """Return lengths, in tokens, with a sum smaller by `excess`, or as small as possible.

    The longest place of the first group loses one token at a time; of equals the last one does.
    When the group is empty, the next group follows. Places in no group keep their length.
    """
    left = list(lengths)
    for group in groups:
        while excess > 0 and any(left[place] for place in group):
            longest = max(group, key=lambda place: (left[place], place))
            left[longest] -= 1
            excess -= 1
    return left


_MASKS = ("mask", "masks")


@dataclass(frozen=True)
class Encoded:
    """One row.

    Args:
        ids: token ids, special tokens included.
        types: segment ids, or None if the tokenizer has none.
        masks: positions where an answer is read, in order.
        softs: positions of learned vectors, in order; `ids` holds a placeholder there.
        items: position of the first token of each written-out label word.
        cut: how many tokens of fields were cut.
    """

    ids: list[int]
    types: list[int] | None
    masks: list[int]
    softs: list[int]
    items: list[int]
    cut: int


class Encoder:
    """Encodes pieces for one tokenizer, each separately, so that slots never change other tokens.

    A mask is the tokenizer's mask token, or the sentinel for a missing span (T5, CPM-2). With a
    tokenizer that has neither, the answer is read at the last token, and a pattern must end in the
    mask. `left_to_right` does so for any vocabulary: Megatron-11B's is RoBERTa's with its mask
    token, but no left-to-right backbone was trained on masks.
    """

    def __init__(self, tokenizer: Any, *, left_to_right: bool = False):
        self._tokenizer, self._left_to_right = tokenizer, left_to_right
        self.spelling = Spelling(tokenizer)
        self._frames = (frame(tokenizer, 1), frame(tokenizer, 2))
        fillers = (tokenizer.unk_token_id, tokenizer.pad_token_id)  # in the place of vectors
        self._filler = next((i for i in fillers if i is not None), 0)

    @property
    def framed(self) -> bool:
        """Whether the tokenizer adds special tokens around a text."""
        return self._frames[0].size > 0

    def encode(
        self,
        pieces: Sequence[Piece],
        room: int,
        masks: int = 1,
        rule: Shorten = "longest",
        before: Callable[[int], list[int]] = lambda size: [],
    ) -> Encoded:
        """Return a row of at most `room` tokens; each `{masks}` slot becomes `masks` tokens.

        `before` returns the tokens that come before the text of a row of so many.

        A field is cut to its own limit. In a long row, shortenable fields lose their last tokens
        first, which of them `rule` says; then the other fields do. Nothing else is cut.

        Raises:
            UserError: the row is too long without its fields, or a mask is not at the end and the
                tokenizer has no mask token.
        """
        around = self._frames[max((piece.segment for piece in pieces), default=0)]
        spelled = self._spell(pieces, around, masks)
        sizes = [len(ids) for ids in spelled]
        left = _shortened(pieces, sizes, room - around.size, rule)
        if around.size + sum(left) > room:
            raise UserError(
                f"a pattern takes {around.size + sum(left)} tokens without any field, and a row "
                f"has room for {room}; use fewer learned vectors, a pattern with fewer words, a "
                "larger task.max_tokens, or a smaller readout.max_new_tokens (ptrun predict: "
                "--max-new-tokens)."
            )
        row = [ids[:size] for ids, size in zip(spelled, left, strict=True)]
        pieces, row = [Piece("literal"), *pieces], [before(around.size + sum(left)), *row]
        return _lay_out(pieces, row, around, sum(sizes) - sum(left))

    def block(self, pieces: Sequence[Piece]) -> list[int]:
        """Return the tokens of whole pieces and of a blank line, or of a separator in its place."""
        around = self._frames[max((piece.segment for piece in pieces), default=0)].ids
        ids, tokenizer = self.encode(pieces, 10**9).ids, self._tokenizer
        line = self.spelling.encode("a\n\n")[len(self.spelling.encode("a")) :]
        ends = [i for i in line if i != tokenizer.unk_token_id] or [tokenizer.sep_token_id]
        text = ids[len(around[0]) : len(ids) - len(around[-1])]
        return [*text, *(i for i in ends if i is not None)]

    def _spell(self, pieces: Sequence[Piece], around: Frame, masks: int) -> list[list[int]]:
        """Return the ids of each piece; a mask without a token has none."""
        holes = iter(self._holes(pieces, masks))
        out, seen = [], -1
        for piece in pieces:
            opens, seen = piece.segment != seen, piece.segment
            if piece.kind in _MASKS:
                out.append(next(holes))
            elif piece.kind == "soft":
                out.append([self._filler] * piece.count)
            elif piece.kind == "separator":
                out.append(self.spelling.separator())
            else:
                joined = opens and piece.segment == 1 and not around.ids[1]
                spell = self.spelling.literal if piece.kind == "literal" else self.spelling.ids
                ids = spell(piece.text, spaced=piece.spaced or joined, opens=opens)
                out.append(ids[: piece.most])
        return out

    def _holes(self, pieces: Sequence[Piece], masks: int) -> list[list[int]]:
        """Return the ids of each mask slot."""
        kinds = [piece.kind for piece in pieces if piece.kind in _MASKS]
        if not kinds:
            return []
        ids, spans = mask_ids(self._tokenizer, len(kinds))
        if not ids or self._left_to_right:
            if (
                len(kinds) > 1
                or (kinds == ["masks"] and masks > 1)
                or pieces[-1].kind not in _MASKS
            ):
                raise UserError(
                    "this backbone has no mask token and reads one answer token at the end; "
                    "use a pattern with one {mask}, its last slot."
                )
            return [[]]
        counts = [masks if kind == "masks" and not spans else 1 for kind in kinds]
        return [[id_] * count for id_, count in zip(ids, counts, strict=True)]


def _shortened(pieces: Sequence[Piece], sizes: list[int], room: int, rule: Shorten) -> list[int]:
    """Return how many tokens each piece keeps."""
    fields = [place for place, piece in enumerate(pieces) if piece.kind == "field"]
    others = [place for place in fields if not pieces[place].shortenable]
    groups = [[place for place in fields if pieces[place].shortenable], others]
    total, masks = sum(sizes), [place for place, p in enumerate(pieces) if p.kind in _MASKS]
    if rule == "last":
        groups = [[place] for group in groups for place in reversed(group)]
    if rule != "in_proportion" or not masks or not total > max(0, room):
        return shorten(sizes, groups, total - room)
    # the texts before and after the first mask have shares of the room in proportion to their
    # lengths, the mask counted with the second, each less one token
    mask = masks[0]
    before, after = sum(sizes[:mask]), sum(sizes[mask + 1 :])
    opening = [[place for place in group if place < mask] for group in groups]
    closing = [[place for place in group if place > mask] for group in groups]
    left = shorten(sizes, opening, before - int(before / total * (room - 1)) + 1)
    left = shorten(left, closing, after - int((1 - before / total) * (room - 1)) + 1)
    return shorten(left, groups, sum(left) - room)  # one side may be all literal text


def _lay_out(pieces: Sequence[Piece], row: Sequence[list[int]], around: Frame, cut: int) -> Encoded:
    ids: list[int] = []
    types: list[int] = []
    masks: list[int] = []
    softs: list[int] = []
    items: list[int] = []
    for segment, special in enumerate(around.ids):
        ids += special
        types += around.types[segment] if around.types is not None else []
        for piece, tokens in zip(pieces, row, strict=True):
            if piece.segment != segment:
                continue
            places = range(len(ids), len(ids) + len(tokens))
            if piece.kind in _MASKS:  # without a token it is read at the token before it
                if not (ids or tokens):
                    raise UserError(
                        "nothing comes before {mask}; the pattern must show some text first."
                    )
                masks += places or [len(ids) - 1]
            elif piece.kind == "soft":
                softs += places
            elif piece.item is not None:
                items.append(len(ids))
            ids += tokens
            types += [around.text_types[segment]] * len(tokens)
    return Encoded(ids, None if around.types is None else types, masks, softs, items, cut)


def paired(
    tokenizer: Any, questions: Sequence[str], contexts: Sequence[str], room: int, stride: int = 0
) -> Any:
    """Tokenize questions with their contexts, with offsets; a question has at most half a row.

    A context that is too long is cut, or with `stride` continued in further rows, which share at
    most that many tokens.
    """
    around = tokenizer.num_special_tokens_to_add(pair=True)
    longest = min(room // 2, room - around - 1)
    windows: dict[str, Any] = {}
    if stride:
        shared = min(stride, 3 * (room - around - longest) // 4)
        windows = {"stride": shared, "return_overflowing_tokens": True}
    bare = [text.lstrip() for text in questions]
    rows = tokenizer(bare, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [
        len(text) if len(at) <= longest else min(at[longest][0], at[longest - 1][1])
        for text, at in zip(bare, rows["offset_mapping"], strict=True)
    ]
    return tokenizer(
        [text[:end] for text, end in zip(bare, ends, strict=True)],
        list(contexts),
        truncation="only_second",
        max_length=room,
        return_offsets_mapping=True,
        **windows,
    )


def after_space(context: str, start: int, end: int) -> int:
    """Return where a token starts without its leading space, which some tokenizers include."""
    return end - len(context[start:end].lstrip())
