"""Pairs are what their labels say, a third each."""

from collections import Counter

import pytest

from ptrun.papers.corpus import cases
from ptrun.papers.ppt import LABELS, pair_rows
from tests.papers.ppt.corpora import document, origin

DOCUMENTS = [document(number, 5 + number % 4) for number in range(1_500)]


@pytest.fixture(scope="module")
def made():
    return [row for case in cases(DOCUMENTS, 1, "a seed") for row in pair_rows(case)]


def test_a_pair_is_made_of_each_line(made):
    assert [origin(row["first"]) for row in made] == [
        (number, place) for number, lines in enumerate(DOCUMENTS) for place in range(len(lines))
    ]


def test_each_label_has_a_third(made):
    """Of 9,750 draws: four standard deviations are 2 %."""
    counts = Counter(row["label"] for row in made)
    assert set(counts) == set(LABELS)
    assert all(abs(count / len(made) - 1 / 3) < 0.02 for count in counts.values())


def test_a_label_says_how_far_apart_two_lines_are(made):
    for row in made:
        (here, first), (there, second) = origin(row["first"]), origin(row["second"])
        near = here == there and abs(first - second) == 1
        far = here == there and abs(first - second) > 1
        assert {"yes": near, "maybe": far, "no": here != there}[row["label"]], row


def test_neighbours_on_both_sides_are_taken_alike(made):
    """Lines at a border have one neighbour; all others draw: four standard deviations are 4 %."""
    steps = []
    for row in made:
        (number, first), (_, second) = origin(row["first"]), origin(row["second"])
        if row["label"] == "yes" and 0 < first < len(DOCUMENTS[number]) - 1:
            steps.append(second - first)
    assert abs(steps.count(1) / len(steps) - 0.5) < 0.045


def test_pairs_of_very_unlike_lengths_are_left_out():
    long = ["a longer line of several words " * 40 for _ in range(5)]
    short = [f"a b c {place}" for place in range(5)]
    made = [row for case in cases([long, short], 1, "s") for row in pair_rows(case)]
    assert made and all(0.01 <= len(r["first"]) / len(r["second"]) <= 100 for r in made)
    assert "no" not in {row["label"] for row in made}
