"""Shortens a row that is too long."""

from collections.abc import Sequence


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
