"""The pocket world is as large and as ambiguous as promised, and its facts fit together."""

from workshop.pocket.world import Entity, table, world


def test_names_are_unique_within_a_kind():
    for group in world().by_kind.values():
        assert len({entity.name for entity in group}) == len(group)


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
