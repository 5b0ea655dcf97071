"""Sentences state their facts, and spans point at the words that name the arguments."""

import random

import pytest

from workshop.pocket.corpus import Manner, state
from workshop.pocket.world import Entity, Text, parse, render, table, world

ALL = 40  # sentences for each relation


def stated(relation: str, **manner):
    rng = random.Random(relation)
    facts = [fact for fact in world().facts if fact.relation == relation]
    for _ in range(ALL):
        fact = rng.choice(facts)
        yield fact, state(fact, Manner(**manner), rng)


def surfaces(entity: Entity) -> set[str]:
    return {entity.name, *entity.short, entity.given}


@pytest.mark.parametrize("relation", table("relations"))
def test_argument_spans_read_as_the_names_of_the_arguments(relation):
    for fact, text in stated(relation, subject="short"):
        assert text.text[0].isupper() and text.text.endswith(".")
        assert not set(text.text) & set("{}[]|<>")
        named = [span for span in text.spans if span.named and span.role in ("s", "o")]
        assert {span.role for span in named} >= {"s"}
        for span in named:
            entity = fact.subject if span.role == "s" else fact.object
            assert span.entity == entity.id
            assert text.text[span.start : span.end] in surfaces(entity)


@pytest.mark.parametrize("relation", table("relations"))
def test_both_arguments_are_in_the_sentence(relation):
    for fact, text in stated(relation):
        roles = {span.role for span in text.spans}
        assert roles >= {"s", "o"}
        assert fact.relation == relation


def test_pronouns_are_spans_without_a_name():
    texts = [text for _, text in stated("lives_in", subject="pronoun")]
    spans = [(t.text[s.start : s.end], s.named) for t in texts for s in t.spans if s.role == "s"]
    pronouns = {words.lower() for words, named in spans if not named}
    assert pronouns <= {"he", "she", "him", "her", "his"}
    assert len(pronouns) >= 4


def test_held_out_and_open_paraphrases_do_not_meet():
    rng = random.Random(0)
    fact = next(f for f in world().facts if f.relation == "born_in")
    kept = {state(fact, Manner(held_out=False), rng).text for _ in range(200)}
    assert not kept & {state(fact, Manner(held_out=True), rng).text for _ in range(200)}


def test_a_fact_keeps_its_year():
    fact = next(f for f in world().facts if f.relation == "founded")
    rng = random.Random(0)
    texts = " ".join(state(fact, Manner(), rng).text for _ in range(200))
    years = {word.strip(".,") for word in texts.split() if word.strip(".,").isdigit()}
    assert years == {fact.details["year"]}


def test_joined_texts_keep_their_spans():
    first = render("{a} [ran|walked].", lambda slot: "Anna", random.Random(0))
    second = render("Then {a} sat.", lambda slot: "Ben", random.Random(0))
    joined: Text = first.join(second)
    assert [joined.text[s.start : s.end] for s in joined.spans] == ["Anna", "Ben"]


def test_an_unmatched_bracket_is_an_error():
    with pytest.raises(ValueError, match="unmatched bracket"):
        parse("one] two")
