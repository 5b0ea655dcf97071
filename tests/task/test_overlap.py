"""Equal texts are found whatever their case, width and spaces, and nothing else is."""

import json

import pytest

from ptrun.task.protocol import compare, fingerprint, normalise, overlaps, unseen
from ptrun.types import Example, Split


def example(text, target="a", group=None, **fields):
    return Example("", {"text": text, **fields}, target, group)


def test_case_width_and_spaces_do_not_count():
    assert normalise("  \uff21\u3000B\t\nc ") == "a b c"  # full width
    assert fingerprint(example("A  Lamp\n")) == fingerprint(example("\uff41 lamp"))


@pytest.mark.parametrize(
    "other",
    [
        example("a lamp!"),
        example("a", more="lamp"),
        example("a lamp", more=""),
        example(["a", "lamp"]),
        example("a lamp", group="P1"),
    ],
    ids=["sign", "two fields", "empty field", "words", "group"],
)
def test_other_texts_fields_and_groups_count(other):
    assert fingerprint(other) != fingerprint(example("a lamp"))


def test_target_and_id_and_the_order_of_fields_do_not_count():
    one = Example("1", {"a": "x", "b": ["y", "z"]}, 0)
    assert fingerprint(one) == fingerprint(Example("2", {"b": ["y", "z"], "a": "x"}, 1))


def test_lists_keep_their_borders():
    assert fingerprint(example(["a", "b c"])) != fingerprint(example(["a b", "c"]))
    assert fingerprint(example(["a"], more=["b"])) != fingerprint(example(["a", "b"], more=[]))


def test_parts_are_compared_within_and_between():
    train = [example("a"), example("A", "b"), example("b"), example("c")]
    found = overlaps(Split(train, [example("d")], [example("b"), example("B"), example("e")], {}))
    assert found.rows == {"train": 4, "dev": 1, "test": 3}
    assert found.duplicates == {"train": 1, "dev": 0, "test": 1}
    assert found.conflicts == {"train": 1, "dev": 0, "test": 0}
    assert found.shared == {"train/test": 1} and found.leaked == {"train/test": 2}
    assert not found.identical


def test_a_dev_that_is_test_is_named_and_the_record_is_plain():
    part = [example("x"), example("y")]
    found = overlaps(Split([example("z")], part, part[::-1], {}))
    assert found.identical == ["dev/test"] and found.leaked == {"dev/test": 2}
    assert json.loads(json.dumps(found.record())) == found.record()


def test_empty_parts_share_nothing():
    found = compare({"train": [], "dev": []})
    assert found.shared == {} and found.identical == [] and found.rows == {"train": 0, "dev": 0}


def test_labels_and_tags_that_train_lacks_are_told_with_their_counts():
    class Labels:
        answer = "label"

    train = [example("a", "x"), example("b", "y")]
    split = Split(train, [example("c", "z")], [example("d", "z"), example("e", "w")], {})
    told, *_ = unseen(Labels(), split)
    assert "labels that train never has" in told and told.endswith(": z (2), w (1)")
    (absent,) = unseen(
        Labels(), Split([*train, example("c", "z")], train, [*train, split.dev[0]], {})
    )
    assert absent.startswith("dev has no example of z, so its scores do not tell how well it is")
    assert unseen(Labels(), Split(train, train, train, {})) == []
    assert unseen(Labels(), Split([], train, train, {})) == []
    Labels.answer = "tags"
    tagged = Split([example("a", ["O", "B-A"])], [], [example("b", ["O", "B-C", "B-C"])], {})
    told = "tags that train never has, so no run learns them: B-C (2)"
    assert unseen(Labels(), tagged)[0].endswith(told)
    Labels.answer = "number"
    equal, other = [example("a", 3), example("b", 3.0)], [example("a", 3.0), example("b", 2.0)]
    (constant,) = unseen(Labels(), Split(other, other, equal, {}))
    assert constant.startswith("test has one score, 3, so there is no correlation")
    Labels.answer = "span"
    assert unseen(Labels(), tagged) == []
