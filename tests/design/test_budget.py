"""Each room of the house is within its budget of lines and tokens, which rises for a reason."""

import subprocess
from itertools import pairwise

import pytest

from tests.design import budget
from tests.design.budget import FILE, ROOT, SLACK, raised, read, tokens, within

BUDGET = read(FILE.read_text(encoding="utf-8"))


def versions():
    """Return the budgets of the last two commits that changed it, where there is a history."""
    name = FILE.relative_to(ROOT).as_posix()
    git = ["git", "-C", str(ROOT)]
    log = [*git, "log", "-2", "--format=%H", "--", name]
    commits = subprocess.run(log, capture_output=True, text=True).stdout.split()
    shown = [subprocess.run([*git, "show", f"{c}:{name}"], capture_output=True) for c in commits]
    return [read(one.stdout.decode()) for one in shown if one.returncode == 0]


def test_every_room_has_a_budget():
    assert {*BUDGET} == {*budget.sizes()}


@pytest.mark.parametrize("room", BUDGET)
def test_a_room_is_within_its_budget(room):
    wrong = within(budget.sizes()[room], BUDGET[room])
    assert wrong is None, f"{room}: {wrong}. python -m tests.design.budget --help"


def test_a_number_rises_with_a_reason():
    history = [BUDGET, *versions()]
    for after, before in pairwise(history):
        assert raised(before, after) == []


def test_what_is_saved_and_what_is_too_much_is_noticed():
    most = {"lines": 100, "tokens": 1000}
    assert within({"lines": 100, "tokens": 1000 * (1 - SLACK)}, most) is None
    assert "1 too many" in within({"lines": 101, "tokens": 1000}, most)
    assert "write down" in within({"lines": 100, "tokens": 979}, most)
    grown = {"a": {**most, "lines": 101}}
    assert raised({"a": most}, grown) == ["a"] == raised({}, grown)
    assert raised({"a": most}, {"a": {**grown["a"], "reason": "a method"}}) == []
    twice = {"a": {**most, "lines": 102, "reason": "a method"}}
    assert raised({"a": {**most, "reason": "a method"}}, twice) == ["a"]


def test_comments_docstrings_and_layout_are_no_tokens():
    assert (
        tokens('"""A."""\n\n\ndef f():\n    """B."""\n    # c\n    return (\n        1\n    )\n')
        == 9
    )
