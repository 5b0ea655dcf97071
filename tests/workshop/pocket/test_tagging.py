"""Names are as ambiguous as promised."""

from collections import Counter, defaultdict

from workshop.pocket.tagging import KINDS, TAG_OF_KIND
from workshop.pocket.world import world


def test_there_are_three_hundred_entities_of_four_types():
    tags = Counter(TAG_OF_KIND[entity.kind] for entity in world().entities())
    assert sum(tags.values()) >= 300
    assert set(tags) == set(KINDS)
    assert min(tags.values()) >= 100


def test_many_surfaces_name_entities_of_different_types():
    types = defaultdict(set)
    for entity in world().entities():
        for surface in (entity.name, *entity.short):
            types[surface].add(TAG_OF_KIND[entity.kind])
    assert sum(len(found) >= 2 for found in types.values()) >= 80
    assert sum(len(found) >= 3 for found in types.values()) >= 30
