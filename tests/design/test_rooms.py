"""The package has few modules at its top, no import cycle, and at most ten floors."""

from graphlib import TopologicalSorter

from tests.design.test_layers import MODULES, ROOT, room


def test_no_module_imports_itself_by_way_of_others():
    TopologicalSorter(MODULES).prepare()


def test_rooms_have_at_most_ten_floors():
    graph, floors = {}, {}
    for module, others in MODULES.items():
        graph.setdefault(room(module), set()).update({*map(room, others)} - {room(module)})
    for own in TopologicalSorter(graph).static_order():
        floors[own] = 1 + max((floors[other] for other in graph.get(own, ())), default=0)
    assert max(floors.values()) <= 10


def test_the_top_has_at_most_nine_modules():
    assert len([file for file in ROOT.glob("*.py") if file.name != "__init__.py"]) <= 9
