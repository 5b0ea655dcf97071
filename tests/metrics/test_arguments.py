import pytest

from ptrun.metrics.arguments import argument_scores
from ptrun.metrics.entities import entity_scores
from tests.metrics.corruption import labels, rounds

TAGS = ["O", "B-V", "B-A0", "I-A0", "B-A1", "I-A1", "B-C-A1", "I-C-A1", "B-R-A0", "B-C-V"]


def reference(tags):
    """Name each word by the argument it is in, then read the arguments back as sets of words."""
    owner, latest, current = {}, {}, None
    for place, tag in enumerate(tags):
        kind = tag[2:]
        if tag == "O":
            current = None
            continue
        if tag[0] == "B" or current is None or current[0] != kind:
            role = kind[2:] if kind[:2] == "C-" else kind
            if kind[:2] != "C-" or role not in latest:
                latest[role] = (role, place)
            current = (kind, latest[role], place)
        owner[place] = current[1], current[2]
    groups = {}
    for place, (argument, part) in owner.items():
        groups.setdefault(argument, {}).setdefault(part, []).append(place)
    return [
        (role, sorted(map(tuple, parts.values())))
        for (role, _), parts in groups.items()
        if role != "V"
    ]


def test_gold_scores_100():
    golds = [["B-A1", "I-A1", "B-V", "B-C-A1", "B-R-A0"], ["B-V", "B-A0"]]
    assert argument_scores(golds, golds) == {"f1": 100.0, "precision": 100.0, "recall": 100.0}


def test_scores_equal_a_count_over_words():
    for rng in rounds():
        golds = [labels(rng, TAGS, rng.randint(1, 12)) for _ in range(rng.randint(1, 5))]
        guesses = [[rng.choice(TAGS) if rng.random() < 0.3 else t for t in row] for row in golds]
        sides = [[reference(row) for row in rows] for rows in (guesses, golds)]
        right = sum(a in gold for guess, gold in zip(*sides, strict=True) for a in guess)
        guessed, wanted = (sum(map(len, side)) for side in sides)
        scores = argument_scores(guesses, golds)
        f1 = 200 * right / (guessed + wanted) if guessed + wanted else 0.0
        assert scores["f1"] == pytest.approx(f1, abs=1e-9)
        assert scores["recall"] == pytest.approx(100 * right / max(wanted, 1), abs=1e-9)


def test_the_predicate_does_not_count_and_a_continuation_must_match_whole():
    golds, guesses = [["B-A1", "B-V", "B-C-A1"]], [["B-A1", "B-V", "O"]]
    assert argument_scores(guesses, golds)["f1"] == 0.0
    assert entity_scores(guesses, golds)["recall"] == pytest.approx(200 / 3)


def test_a_continuation_without_a_head_is_an_argument():
    assert argument_scores([["B-C-A1"]], [["B-A1"]])["f1"] == 100.0


def test_sentences_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="1 predictions for 2 targets"):
        argument_scores([["O"]], [["O", "B-V"]])
