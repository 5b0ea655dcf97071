"""Profiles, chains, stories: sentences that share their people and keep to the facts."""

import random

from workshop.pocket.corpus import Cast, chain, facts_about, profile, story, topics
from workshop.pocket.world import world


def test_a_cast_is_known_or_strange_from_beginning_to_end():
    facts = [fact for fact in world().facts if fact.relation == "works_for"][:20]
    strange = 0
    for seed in range(20):
        cast = Cast(random.Random(seed))
        played = [cast.play(fact) for fact in facts]
        if played == facts:
            continue
        strange += 1
        assert not any(new.subject == old.subject for new, old in zip(played, facts, strict=True))
        assert [cast.play(fact) for fact in facts] == played
    assert 3 <= strange <= 17


def test_strangers_do_not_bear_the_names_of_known_people():
    names = {person.name for person in world().by_kind["person"]}
    facts = [fact for fact in world().facts if fact.relation == "friend_of"]
    for seed in range(10):
        cast = Cast(random.Random(seed))
        if cast.strange:
            assert not {cast.play(fact).subject.name for fact in facts} & names


def test_documents_have_several_sentences():
    rng = random.Random(0)
    for make in (profile, chain, story):
        lengths = [len(make(rng)) for _ in range(100)]
        assert max(lengths) >= 5
        assert sum(lengths) / len(lengths) >= 3


def test_hidden_entities_are_no_topics():
    assert not any(entity.hidden for entity in topics())
    assert not any(fact.hidden for entity in topics() for fact in facts_about(entity))


def test_a_story_keeps_its_town():
    rng = random.Random(1)
    for _ in range(50):
        text = " ".join(story(rng))
        assert not set(text) & set("{}[]|<>")
