"""Examples in columns are the examples of a list, in less memory."""

from dataclasses import replace

import pytest

from ptrun.errors import UserError
from ptrun.task import columns
from ptrun.task.columns import ExampleColumns, gathered, part_of, targets_of
from ptrun.task.protocol import carve, overlaps
from ptrun.types import Example, Split

TEXTS = ["A  film", "a film", "ﬁne", "fine", "other", "", "mañana"]


def rows(count):
    """Return examples with texts that repeat, but for case, spaces and ligatures."""
    return [
        Example(f"r{n}", {"text": TEXTS[n % 7], "more": f"{n // 14}"}, "ab"[n % 2])
        for n in range(count)
    ]


@pytest.fixture
def few(monkeypatch):
    """Let columns begin at five examples, in blocks of four."""
    monkeypatch.setattr(columns, "FEW", 5)
    monkeypatch.setattr(columns, "_BLOCK", 4)


def test_many_examples_become_columns_and_read_the_same(few):
    wanted = rows(50)
    found = gathered(iter(wanted))
    assert isinstance(found, ExampleColumns) and isinstance(gathered(wanted[:4]), list)
    assert list(found) == wanted == [found[i] for i in range(50)] and found[-1] == wanted[-1]
    assert found[3:9] == wanted[3:9] and len(found) == 50
    assert list(targets_of(found)) == list(targets_of(wanted))
    with pytest.raises(IndexError):
        found[50]


def test_a_part_of_a_part_is_the_same_part(few):
    wanted, found = rows(50), gathered(rows(50))
    some, more = [40, 3, 7, 7, 20, 11, 0], [6, 1, 4]
    assert list(part_of(found, some)) == part_of(wanted, some)
    own = part_of(part_of(found, some), more)
    assert list(own) == part_of(part_of(wanted, some), more) == [own[i] for i in range(3)]
    assert [e.id for e in own] == ["r0", "r3", "r20"] and own[0:2] == [own[0], own[1]]


def test_equal_texts_are_found_in_both_forms(few):
    wanted, found = rows(50), gathered(rows(50))
    lists = overlaps(Split(wanted[:30], wanted[30:40], wanted[40:], {}))
    own = overlaps(
        Split(part_of(found, range(30)), wanted[30:40], part_of(found, range(40, 50)), {})
    )
    assert own == lists and lists.duplicates["train"] > 0 and lists.conflicts["train"] > 0
    for seed in range(3):
        both = [carve(examples, 0.3, seed, by_class=True) for examples in (wanted, found)]
        assert [list(part) for part in both[0]] == [list(part) for part in both[1]]


def test_a_full_disk_of_temporary_files_is_named(few, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(UserError, match="set TMPDIR to another folder"):
        gathered(iter(rows(50)))


@pytest.mark.parametrize("late", [{"group": "g"}, {"fields": {"text": ["a"], "more": ""}}])
def test_a_row_of_another_form_makes_a_list_of_all(few, late):
    mixed = [*rows(30), replace(rows(1)[0], **late), *rows(20)]
    assert gathered(iter(mixed)) == mixed


def test_lists_are_no_texts(few):
    chats = [Example(str(n), {"messages": [{"role": "user"}]}, "x") for n in range(9)]
    assert gathered(iter(chats)) == chats
