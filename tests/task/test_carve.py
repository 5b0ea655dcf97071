"""What is carved from train: size, shares of the classes, and the seed alone decides."""

import random
from collections import Counter

import pytest

from ptrun.errors import UserError
from ptrun.task import protocol
from ptrun.task.protocol import carve, normalise
from ptrun.types import Example


def examples(**counts):
    targets = [label for label, count in counts.items() for _ in range(count)]
    random.Random(0).shuffle(targets)
    return [Example(str(i), {}, target) for i, target in enumerate(targets)]


def labels(part):
    return Counter(example.target for example in part)


def test_a_small_dev_keeps_every_class_at_every_seed():
    train = examples(good=17, bad=3)
    for seed in range(50):
        rest, dev = carve(train, 0.1, seed, by_class=True)
        assert labels(dev) == {"good": 4, "bad": 1} and labels(rest) == {"good": 13, "bad": 2}
    assert any("bad" not in labels(carve(train, 0.1, seed)[1]) for seed in range(50))


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ({"a": 500, "b": 300, "c": 200}, 0.1, {"a": 50, "b": 30, "c": 20}),
        ({"a": 34, "b": 33, "c": 33}, 0.1, {"a": 4, "b": 3, "c": 3}),
        ({"a": 18, "b": 2}, 0.1, {"a": 4, "b": 1}),  # both are due a half more
        ({"a": 39, "b": 1}, 0.1, {"a": 10}),  # the only one stays in train
        ({"a": 5, "b": 1, "c": 1, "d": 1}, 0.5, {"a": 4}),
    ],
)
def test_shares_are_rounded_by_largest_remainder(counts, share, wanted):
    train = examples(**counts)
    rest, part = carve(train, share, 3, by_class=True)
    assert labels(part) == wanted and set(labels(rest)) == set(counts)


def test_sizes_differ_from_what_is_due_by_less_than_one():
    rng = random.Random(1)
    for seed in range(100):
        counts = {name: rng.randint(5, 90) for name in "abcdef"}
        train, share = examples(**counts), rng.choice([0.05, 0.1, 0.3])
        rest, dev = carve(train, share, seed, by_class=True)
        assert len(dev) == len(carve(train, share, seed)[1])
        due = {name: len(dev) * count / len(train) for name, count in counts.items()}
        assert all(abs(labels(dev)[name] - due[name]) < 1 for name in counts)
        assert sorted(int(e.id) for e in [*rest, *dev]) == list(range(len(train)))


def test_the_seed_alone_decides_and_file_order_stays():
    train = examples(a=60, b=40)
    draw = [carve(train, 0.1, seed, by_class=True)[1] for seed in (1, 1, 2)]
    assert draw[0] == draw[1] != draw[2]
    assert [int(e.id) for e in draw[0]] == sorted(int(e.id) for e in draw[0])
    assert carve(train, 0.1, 1, "test", by_class=True)[1] != draw[0]


def test_one_class_is_drawn_as_targets_that_are_no_labels():
    train = examples(a=40)
    assert carve(train, 0.1, 1, by_class=True) == carve(train, 0.1, 1)


def test_too_few_examples_of_each_class_are_refused():
    with pytest.raises(UserError, match="4 examples of 4 labels, too few to carve 10% for dev"):
        carve(examples(a=1, b=1, c=1, d=1), 0.1, 1, by_class=True)
    with pytest.raises(UserError, match="train has 1 examples, too few"):
        carve(examples(a=1), 0.1, 1)


def test_answers_to_one_question_stay_together():
    groups = [f"question {i}" for i in range(40)]
    train = [Example(f"{g}-{i}", {}, "right", g) for g in groups for i in range(5)]
    rest, dev = carve(train, 0.1, 1, by_class=True)
    assert len({e.group for e in dev}) == 4 and len(rest) + len(dev) == 200
    assert not {e.group for e in dev} & {e.group for e in rest}


@pytest.mark.parametrize("by_class", [False, True])
def test_equal_texts_stay_on_one_side(by_class):
    texts = [f"Text {i % 40}" if i % 2 else f" text  {i % 40} " for i in range(120)]
    train = [Example(str(i), {"text": t}, "ab"[i % 40 % 2]) for i, t in enumerate(texts)]
    for seed in range(20):
        rest, dev = carve(train, 0.2, seed, by_class=by_class)
        left, right = ({normalise(e.fields["text"]) for e in part} for part in (rest, dev))
        assert not left & right and len(rest) + len(dev) == 120
        assert 20 <= len(dev) <= 24 and set(labels(dev)) == set("ab")


def test_texts_that_differ_are_drawn_as_without_the_search_for_equal_ones(monkeypatch):
    train = [Example(str(i), {"text": f"text {i}"}, "ab"[i % 2]) for i in range(50)]
    found = carve(train, 0.2, 3, by_class=True)
    monkeypatch.setattr(protocol, "_copies", lambda train: {})
    assert carve(train, 0.2, 3, by_class=True) == found
