"""Shortens a row that is too long."""

from collections.abc import Sequence
from typing import Literal

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


def shorten_last(lengths: Sequence[int], groups: Sequence[Sequence[int]], excess: int) -> list[int]:
    """Return lengths, in tokens, with a sum smaller by `excess`, or as small as possible.

    As in P-tuning's few-shot code, whose rows have one segment, the last place of the first group
    loses its tokens, then the one before it. When the group is empty, the next group follows.
    """
    left = list(lengths)
    for place in (place for group in groups for place in sorted(group, reverse=True)):
        cut = min(max(0, excess), left[place])
        left[place] -= cut
        excess -= cut
    return left


def shorten_in_proportion(
    lengths: Sequence[int], groups: Sequence[Sequence[int]], room: int, mask: int
) -> list[int]:
    """Return lengths, in tokens, with a sum of at most `room`, or as small as possible.

    As in PPT's code, the texts before and after the place of the mask have shares of the room in
    proportion to their lengths, the mask counted with the second, each less one token.
    """
    total, before = sum(lengths), sum(lengths[:mask])
    if not total:
        return list(lengths)
    first = int(before / total * (room - 1)) - 1
    second = int((1 - before / total) * (room - 1)) - 1
    after = total - before - lengths[mask]
    opening = [[place for place in group if place < mask] for group in groups]
    closing = [[place for place in group if place > mask] for group in groups]
    left = shorten(shorten(lengths, opening, before - first), closing, after - second)
    return shorten(left, groups, sum(left) - room)  # one side may be all literal text
