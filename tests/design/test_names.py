"""Variables are nouns of the field, and a helper of three lines has two callers: mostly."""

from tests.design.names import overridden, short_helpers, sources, stores

MOST_ROLES, MOST_HELPERS = 130, 40


def test_few_variables_are_called_by_a_role():
    places = [f"{file}:{line} {name}" for file, tree in sources() for line, name in stores(tree)]
    assert len(places) <= MOST_ROLES, places


def test_few_helpers_are_too_short_to_jump_to():
    shared = overridden()
    places = [
        f"{file}:{line} {name}"
        for file, tree in sources()
        for line, name in short_helpers(tree, shared)
    ]
    assert len(places) <= MOST_HELPERS, places
