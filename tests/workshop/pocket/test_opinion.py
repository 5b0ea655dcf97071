"""The sign of an opinion is composed, and no bag of words can tell it."""

import random
from collections import Counter

from workshop.pocket.corpus import Speaker, fitting, review, things
from workshop.pocket.world import items, table


def opinions(count: int, held: float = 0.0):
    rng = random.Random("opinions")
    for _ in range(count):
        sign = rng.choice((1, -1))
        yield sign, Speaker(rng.choice(things()), rng, held).opinion(sign)


def test_the_sign_asked_for_is_the_sign_computed():
    for sign, opinion in opinions(500):
        assert opinion.value == sign == opinion.main.predicate_sign * opinion.main.polarity


def test_negation_contrast_and_plain_praise_all_occur():
    kinds = Counter()
    for _, opinion in opinions(500):
        kinds["flipped"] += opinion.main.polarity < 0
        kinds["contrast"] += bool(opinion.other and opinion.other.value != opinion.value)
        kinds["plain"] += opinion.other is None and opinion.main.polarity > 0
    assert min(kinds.values()) >= 100


def test_the_same_adjective_is_good_of_one_aspect_and_bad_of_another():
    good, bad = set(), set()
    for thing in things():
        for aspect in table("opinions")["things"][thing]:
            good.update(*fitting(thing, aspect, 1))
            bad.update(*fitting(thing, aspect, -1))
    assert len(good & bad) >= 20


def test_no_adjective_is_good_and_bad_of_the_same_aspect():
    for thing in things():
        for aspect in table("opinions")["things"][thing]:
            assert not {*sum(fitting(thing, aspect, 1), ())} & {
                *sum(fitting(thing, aspect, -1), ())
            }


def test_held_out_words_are_never_drawn_where_held_is_zero():
    held = {
        word
        for name in ("adjectives", "nouns", "comparisons", "qualities")
        for sign in ("good", "bad")
        for word in items(table("opinions")[name][f"{sign}_held"])
    }
    for _, opinion in opinions(500):
        assert not any(word in opinion.text for word in held)


def test_a_review_is_an_opinion_and_its_consequences():
    rng = random.Random(0)
    for _ in range(50):
        sentences = review(rng)
        assert 2 <= len(sentences) <= 5
        assert all(s[0].isupper() and s[-1] in ".?!" for s in sentences)
