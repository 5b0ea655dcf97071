"""The sign of an opinion is composed, and no bag of words can tell it."""

import random

from workshop.pocket.corpus import Speaker, fitting, things
from workshop.pocket.world import items, table


def opinions(count: int, held: float = 0.0):
    rng = random.Random("opinions")
    for _ in range(count):
        sign = rng.choice((1, -1))
        yield sign, Speaker(rng.choice(things()), rng, held).opinion(sign)


def test_the_sign_asked_for_is_the_sign_computed():
    for sign, opinion in opinions(500):
        assert opinion.value == sign == opinion.main.predicate_sign * opinion.main.polarity


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
