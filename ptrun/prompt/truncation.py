"""Who loses tokens where a row is too long."""

from collections.abc import Sequence


def shorten(lengths: Sequence[int], groups: Sequence[Sequence[int]], excess: int) -> list[int]:
    """Return lengths, in tokens, whose sum is `excess` smaller, or as small as may be.

    Of the first group of places the longest loses its last token, the later one of equals, again
    and again; when the group has none left, the next group. Places in no group keep theirs.
    """
    left = list(lengths)
    for group in groups:
        while excess > 0 and any(left[place] for place in group):
            longest = max(group, key=lambda place: (left[place], place))
            left[longest] -= 1
            excess -= 1
    return left
