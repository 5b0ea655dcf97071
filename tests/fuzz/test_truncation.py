"""Truncation: as much is cut as must be, from the right places, one token at a time."""

from hypothesis import example, given
from hypothesis import strategies as st

from ptrun.pattern.encoding import shorten, shorten_in_proportion, shorten_last

LENGTHS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


@st.composite
def rows(draw):
    """Draw lengths and two groups of their places, as fields are."""
    lengths = draw(LENGTHS)
    of = [draw(st.sampled_from([0, 1, None])) for _ in lengths]
    groups = [[place for place, group in enumerate(of) if group == own] for own in (0, 1)]
    return lengths, groups


def heap_of(lengths, groups, excess):
    """Cut by sorting: the same rule written another way."""
    left = list(lengths)
    for group in groups:
        tokens = [(rank, place) for place in group for rank in range(1, left[place] + 1)]
        for _, place in sorted(tokens, reverse=True)[: max(0, excess)]:
            left[place] -= 1
            excess -= 1
    return left


@given(rows(), st.integers(-3, 60))
def test_the_longest_lose_first(row, excess):
    lengths, groups = row
    left = shorten(lengths, groups, excess)
    assert left == heap_of(lengths, groups, excess)
    cuttable = sum(lengths[place] for group in groups for place in group)
    for own in (left, shorten_last(lengths, groups, excess)):
        assert sum(lengths) - sum(own) == min(max(0, excess), cuttable)


@given(rows(), st.integers(-5, 60), st.data())
@example(([0, 0], [[0], []]), -1, None)
def test_shares_in_proportion_fit_or_nothing_is_left(row, room, data):
    lengths, groups = row
    mask = data.draw(st.integers(0, len(lengths) - 1)) if data else 1
    groups = [[place for place in group if place != mask] for group in groups]
    left = shorten_in_proportion(lengths, groups, room, mask)
    assert all(0 <= a <= b for a, b in zip(left, lengths, strict=True))
    fields = [place for group in groups for place in group]
    assert sum(left) <= max(room, 0) or not any(left[place] for place in fields)
    assert all(left[i] == lengths[i] for i in range(len(lengths)) if i not in fields)
