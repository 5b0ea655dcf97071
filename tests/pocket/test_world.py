"""The pocket world is as large and as ambiguous as promised, and its facts fit together."""

from collections import Counter, defaultdict

from ptrun.pocket.entity import KINDS, TAG_OF_KIND, Entity
from ptrun.pocket.lexicon import table
from ptrun.pocket.world import world


def test_there_are_three_hundred_entities_of_four_types():
    tags = Counter(TAG_OF_KIND[entity.kind] for entity in world().entities())
    assert sum(tags.values()) >= 300
    assert set(tags) == set(KINDS)
    assert min(tags.values()) >= 100


def test_names_are_unique_within_a_kind():
    for group in world().by_kind.values():
        assert len({entity.name for entity in group}) == len(group)


def test_many_surfaces_name_entities_of_different_types():
    types = defaultdict(set)
    for entity in world().entities():
        for surface in (entity.name, *entity.short):
            types[surface].add(TAG_OF_KIND[entity.kind])
    assert sum(len(found) >= 2 for found in types.values()) >= 80
    assert sum(len(found) >= 3 for found in types.values()) >= 30


def test_twenty_relations_have_ten_paraphrases_each():
    relations = table("relations")
    assert len(relations) >= 20
    for name, entry in relations.items():
        every = entry["templates"] + entry["held_out"]
        assert len(entry["templates"]) >= 8, name
        assert len(entry["held_out"]) >= 2, name
        assert len(set(every)) == len(every), name


def test_facts_have_subjects_and_objects_of_the_right_kinds():
    for fact in world().facts:
        entry = table("relations")[fact.relation]
        assert fact.subject.kind in entry["subject"].split()
        if isinstance(fact.object, Entity):
            assert fact.object.kind in entry["object"].split()


def test_every_relation_has_facts_open_to_training_and_reserved_ones():
    kept, reserved = set(), set()
    for fact in world().facts:
        (reserved if fact.reserved else kept).add(fact.relation)
    assert kept == reserved == set(table("relations"))


def test_marriage_holds_both_ways():
    couples = {(f.subject.id, f.object.id) for f in world().facts if f.relation == "married_to"}
    assert couples
    assert {(b, a) for a, b in couples} == couples
